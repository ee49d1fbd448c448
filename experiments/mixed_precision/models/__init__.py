"""Training steps computed in bf16 with parameters in f32, of one or two layers at the widths of released models.

layers      attention in its usual forms, gated and plain MLPs
decoders    GPT-2, Llama, T5, a mixture of experts
encoders    BERT, Whisper's encoder, an LSTM
images      ViT, CLIP, Swin, a Mixer, a diffusion transformer
convs       ConvNeXt, a stage of ResNet-50
"""
