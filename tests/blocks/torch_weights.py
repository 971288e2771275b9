"""Names of our blocks for the tensors of torch's own Transformer layers."""


def weights_of(theirs, attentions, norms):
    """The state dict of our block with the weights of a layer `theirs` of torch.

    `attentions` pairs our name of each attention with torch's; `norms` are our names, in order.
    """
    state, other = {}, theirs.state_dict()
    for kind in ("weight", "bias"):
        for ours, name in attentions:
            parts = other[f"{name}.in_proj_{kind}"].chunk(3)
            for letter, part in zip("qkv", parts, strict=True):
                state[f"{ours}.{letter}_proj.{kind}"] = part
            state[f"{ours}.o_proj.{kind}"] = other[f"{name}.out_proj.{kind}"]
        state[f"ffn.up_proj.{kind}"] = other[f"linear1.{kind}"]
        state[f"ffn.down_proj.{kind}"] = other[f"linear2.{kind}"]
        for number, name in enumerate(norms, 1):
            state[f"{name}.{kind}"] = other[f"norm{number}.{kind}"]
    return state
