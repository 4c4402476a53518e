"""Functions bound to their first arguments, for compiled code, which cannot return closures."""

from __future__ import annotations

from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing import signature
from numba.extending import intrinsic, lower_builtin, register_model

__all__ = ["closure"]


class Closure(types.Callable):
    """The type of a compiled function, `core`, with first arguments of the types `kept`."""

    def __init__(self, core, kept):
        self.core, self.kept = core, kept
        super().__init__(name=f"Closure({core}, {kept})")

    def get_call_type(self, context, args, kws):
        own = self.core.get_call_type(context, (*self.kept, *args), kws)
        return signature(own.return_type, *args, recvr=self)

    def get_call_signatures(self):
        return [], True

    def get_impl_key(self, sig):
        return Closure


@register_model(Closure)
class _Kept(models.StructModel):
    def __init__(self, manager, of):
        super().__init__(manager, of, [("kept", of.kept)])


@lower_builtin(Closure, Closure, types.VarArg(types.Any))
def _call(context, builder, sig, args):
    of, *given = sig.args
    kept = cgutils.create_struct_proxy(of)(context, builder, value=args[0]).kept
    own = of.core.get_call_type(context.typing_context, (*of.kept, *given), {})
    function = context.get_function(of.core, own)
    return function(builder, [*cgutils.unpack_tuple(builder, kept), *args[1:]])


@intrinsic
def closure(typingctx, core, kept):
    """Return a function that calls the compiled `core` with the tuple `kept` and its arguments."""
    of = Closure(core, kept)

    def codegen(context, builder, sig, args):
        made = cgutils.create_struct_proxy(of)(context, builder)
        context.nrt.incref(builder, kept, args[1])
        made.kept = args[1]
        return made._getvalue()

    return of(core, kept), codegen
