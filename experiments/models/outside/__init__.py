"""Models as users of flax, equinox and haiku write them: programs that no rule of this project was made for.

    vit, mixer, towers, bert, gpt, resnet, convnext, wavenet, conformer, lstm, moe, llama, mamba
                    `training(...) -> Training`: a step with an optimizer of optax, and abstract arguments
    world_model, radiance_field, dino, lora, ctc, evoformer, rwkv, sinkhorn
    vqvae, seq2seq, set_transformer, retrieval, flow, tab_transformer, state_space, ppo
    perceiver, codec, graph_attention, neural_ode, hypernetwork, retnet, point_net, diffuser
    efficient_net, hyena, meta_learning, molecules, muzero, physics, transducer, gan
                    the same, of kinds that none of those is: scans, loops, reinforcement, optimal transport
    neox, whisper, t5, qwen, roberta, gpt_dropout, microbatches, diffusion_transformer, masked_autoencoder, soft_moe
    swin, segformer, performer, selective_scan, wav2vec, word_lstm, behaviour_sequences, n_beats, hash_grids
    mobile_net, resnext, batch_norm_resnet, wide_resnet, dense_net, alpha_zero, dqn, soft_actor_critic, yolo, deeplab
    super_resolution, transposed_unet, volume_unet, vae, generator, conv_lstm, fourier_operator
    pixel_cnn, latent_unet, transformer_xl, sliding_window, griffin, capsules, muon_gpt, moco, weather_mesh, crf_tagger
    energy_model, hifi_gan, sam_mixer, deep_sets_ranker
                    the same as `training_of` makes it of a flax module, with running statistics beside the parameters
    train_states    a GPT, a ViT and a Mixer around flax's `TrainState`; `Model`, with schedules that people write
    released        models of released packages, at the sizes they have; `MODELS`: name -> what builds a step

`SMALL` of a model are sizes for `training(**SMALL)` that eight host devices run in seconds. Experiments and tests take
their models from here.
"""
