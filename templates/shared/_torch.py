"""When torch must see a call: then it goes through an op in `torch.library`.

That costs microseconds. So tensors go straight to the kernel, except in a graph, where
a gradient is asked for, within torch's transforms, and for subclasses of tensors.
"""

try:
    import torch
    from torch.library import custom_op  # noqa: F401, which torch has from 2.4 on
except ImportError:
    torch = None
    Tensor = ()
else:
    # Bound once: every look-up of a name is a part of what a small call costs.
    Tensor, Parameter = torch.Tensor, torch.nn.Parameter
    compiling, gradients = torch.compiler.is_dynamo_compiling, torch.is_grad_enabled
    # Of make_fx and company, and of torch.func. torch has no public name for either.
    modes = torch._C._len_torch_dispatch_stack
    transform = torch._C._functorch.peek_interpreter_stack


def torch_sees(*tensors):
    """Whether torch must see a call with these arguments; None for no tensors of torch.

    The first decides whose they are.
    """
    if not isinstance(tensors[0], Tensor):
        return None
    if compiling() or modes() or transform() is not None:
        return True
    for tensor in tensors:
        if type(tensor) is Tensor or type(tensor) is Parameter:
            if tensor.requires_grad and gradients():
                return True
        elif tensor is not None and isinstance(tensor, Tensor):
            return True
    return False


def refuse_gradient(what, instead, *tensors):
    """Refuse a call that asks for a gradient where there is none.

    Raises:
        RuntimeError: One of the tensors requires grad, and gradients are enabled.
    """
    if torch is None or not gradients():
        return
    for tensor in tensors:
        if isinstance(tensor, Tensor) and tensor.requires_grad:
            raise RuntimeError(
                f"{what} has no gradient, but an argument requires grad: "
                f"{instead}, or call it under torch.no_grad()"
            )
