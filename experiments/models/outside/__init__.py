"""Models as users of flax, equinox and haiku write them: programs that no rule of this project was made for.

    vit, mixer, towers, bert, gpt, resnet, conformer, lstm, moe

Each file has one function, `training(...) -> Training`: a step with an optimizer of optax, and abstract arguments.
"""
