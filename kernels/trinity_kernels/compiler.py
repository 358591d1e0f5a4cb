"""Numba: what the decorators do where code is compiled, and how a function is compiled.

Only the compiler's copy of this package imports this module (compiled_copy.py). No floating-point
relaxation: multiply and add stay separate, sums keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding
from numba.core import compiler, config, event, typed_passes, types, untyped_passes
from numba.core.ccallback import _CFuncCompiler  # type: ignore[attr-defined]
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.datamodel.models import OpaqueModel
from numba.core.registry import cpu_target
from numba.core.typing.context import BaseContext
from numba.core.typing.templates import AbstractTemplate, infer, infer_global
from numba.extending import lower_builtin, overload, register_model

from trinity_kernels import soft_half
from trinity_kernels.code_files import cache_folder
from trinity_kernels.compiled_copy import counterpart
from trinity_kernels.flat_code import FlatCode, UnlinkableError, link
from trinity_kernels.loaded_code import loadable
from trinity_kernels.numba_cache import CodeCache
from trinity_kernels.processor import target

MIN_NUMBA, MAX_NUMBA = (0, 65), (0, 69)
_version = tuple(int(p) for p in numba.__version__.split(".")[:2])
if not MIN_NUMBA <= _version < MAX_NUMBA:
    raise ImportError(
        f"trinity_kernels needs numba >= {MIN_NUMBA[0]}.{MIN_NUMBA[1]} and "
        f"< {MAX_NUMBA[0]}.{MAX_NUMBA[1]}, found {numba.__version__}: "
        "install a version in that range"
    )


class _Compiler(compiler.CompilerBase):  # type: ignore[misc]
    """The passes of Numba that kernels need. Kernels have no closures, ``with`` and arrays."""

    _PASSES = (
        untyped_passes.TranslateByteCode,
        untyped_passes.FixupArgs,
        untyped_passes.IRProcessing,
        untyped_passes.GenericRewrites,
        untyped_passes.ReconstructSSA,
        untyped_passes.DeadBranchPrune,
        typed_passes.NopythonTypeInference,
        typed_passes.PreLowerStripPhis,
        typed_passes.IRLegalization,
        typed_passes.NativeLowering,
        typed_passes.NoPythonBackend,
    )

    def define_pipelines(self) -> list[PassManager]:
        manager = PassManager("kernels")
        for one in self._PASSES:
            manager.add_pass(one, one.name())
        manager.finalize()
        return [manager]


_OPTIONS = {"error_model": "numpy", "boundscheck": False}
# Neither Python nor C calls the functions that a kernel inlines. All have the same options: Numba
# compiles a function again for callers with others.
_INLINED = {
    **_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": _Compiler,
}  # fmt: skip


def _prepare() -> None:
    """Tell Numba what code is compiled for, before its first decorator makes a target machine."""
    here = target()
    config.CPU_NAME, config.CPU_FEATURES = here.name, here.features
    codegen = cpu_target.target_context.codegen()
    if _lacks_halves():
        codegen._add_module(soft_half.module())


def _lacks_halves() -> bool:
    """Whether there may be no instructions for float16."""
    here = target()
    return here.architecture != "aarch64" and (here.chosen or "f16c" not in here.has)


_prepare()


def inline(function: Callable[..., Any]) -> Any:
    """A function called by kernels; LLVM inlines it."""
    return numba.njit(**_INLINED)(function)


def choose(stub: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """The decorated function gets the types of ``stub``'s arguments and returns the code to use."""
    return overload(stub, _INLINED, strict=False)  # type: ignore[no-any-return]


def declare_constant(function: Callable[..., Any]) -> None:
    """Let compiled code call ``function``: its result for the tags becomes a constant."""

    @infer
    class _ConstantTemplate(AbstractTemplate):  # type: ignore[misc]
        key = function

        def generic(self, args: Any, kws: Any) -> Any:
            return numba.typeof(function(*args))(*args)

    @lower_builtin(function, *[Tag] * len(signature(function).parameters))  # type: ignore[untyped-decorator]
    def _lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.get_constant_generic(builder, sig.return_type, function(*sig.args))

    infer_global(function, types.Function(_ConstantTemplate))


def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose body is LLVM instructions."""
    return numba.extending.intrinsic(function)  # type: ignore[no-any-return]


class Tag(types.Type):
    """A value without data whose type chooses code: an ISA level or a quantization type."""

    def __init__(self, kind: str, value: str) -> None:
        self.kind = kind
        self.value = value
        super().__init__(name=f"{kind}_{value}")


@register_model(Tag)
class _TagModel(OpaqueModel):  # type: ignore[misc]
    pass


def _type(name: str) -> Any:
    """Numba's type, or a tag: "isa:avx2", "quant:Q4_0"."""
    kind, colon, value = name.partition(":")
    return Tag(kind, value) if colon else getattr(types, name)


@global_compiler_lock  # type: ignore[untyped-decorator]
def code_of(function: Callable[..., Any], arguments: Sequence[str], result: str, anew: bool) -> Any:
    """The code of a function of the engine's modules: the fields of a FlatCode.

    An address instead, where only Numba can load the code. None if it is not in Numba's cache and
    not to be compiled ``anew``.
    """
    own = counterpart(function)
    signature = _type(result)(*map(_type, arguments))
    folder, cache = cache_folder(), None
    if folder is not None:
        with _cache_in(folder):
            cache = CodeCache(own)
    compiled = cache and cache.load_overload(signature, cpu_target.target_context)
    if compiled is None:
        if not anew:
            return None
        options = {"nopython": True, **_OPTIONS}
        made = _KernelCompiler(own, cpu_target, options, {}, pipeline_class=_Compiler)
        with _without_what_only_python_needs():
            compiled = made.compile(signature.args, signature.return_type)
        flat = _flat_code(compiled)
        if flat is not None and loadable(flat):
            return flat.code, flat.entry, flat.variables, flat.calls
        compiled.library.load_by_numba()
        if cache:
            cache.save_overload(signature, compiled)
    name = compiled.fndesc.llvm_cfunc_wrapper_name
    return int(compiled.library.get_pointer_to_function(name))


def _flat_code(compiled: Any) -> FlatCode | None:
    """The machine code, if it can be linked."""
    if compiled.library.has_dynamic_globals:
        return None
    try:
        return link(object_code(compiled.library), compiled.fndesc.llvm_cfunc_wrapper_name)
    except UnlinkableError:
        return None


def object_code(library: Any) -> bytes:
    """The object file of a compiled library."""
    module = library._final_module
    if _lacks_halves():
        module = module.clone()
        module.link_in(soft_half.module())
    code: bytes = target_machine().emit_object(module)
    return code


def target_machine() -> Any:
    """LLVM's target machine that writes object files."""
    here = target()
    return binding.Target.from_triple(binding.get_process_triple()).create_target_machine(
        cpu=here.name, features=here.features, opt=int(config.OPT), reloc="pic", codemodel="small"
    )


@contextmanager
def _cache_in(folder: Path) -> Iterator[None]:
    """Point Numba's cache at a folder for the length of a ``with``."""
    saved = config.CACHE_DIR
    config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        config.CACHE_DIR = saved


@contextmanager
def _without_what_only_python_needs() -> Iterator[None]:
    """Compile less, for the length of a ``with``: only other compiled code calls the functions.

    Of a function that a kernel calls no machine code is made, so its environment has no address.
    Numba's events, which time each call of LLVM, take a tenth of the compiler's time. The types of
    a call are found once.
    """
    codegen = cpu_target.target_context.codegen()
    with ExitStack() as stack:
        for place, name, value in (
            (codegen, "_library_class", _InlinedLibrary),
            (codegen, "set_env", _nothing),
            (BaseContext, "resolve_function_type", _resolve_call),
            (event, "start_event", _nothing),
            (event, "end_event", _nothing),
        ):
            stack.callback(setattr, place, name, getattr(place, name))
            setattr(place, name, value)
        yield


def _nothing(*arguments: Any, **options: Any) -> None:
    """Do nothing."""


_resolve = BaseContext.resolve_function_type
_resolved: dict[tuple[Any, ...], Any] = {}


def _resolve_call(context: Any, function: Any, arguments: Any, keywords: Any) -> Any:
    """Resolve a call's types once. Numba would try all overloads again at every call."""
    if keywords or not isinstance(function, types.Type):
        return _resolve(context, function, arguments, keywords)
    key = (context, function, *arguments)
    found = _resolved.get(key)
    if found is None:
        found = _resolved[key] = _resolve(context, function, arguments, keywords)
    return found


class _InlinedLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The module of a function that only compiled code calls: LLVM optimizes it in each kernel."""

    def finalize(self) -> None:
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        return self._final_module

    def get_pointer_to_function(self, name: str) -> int:
        return 0


class _Library(JITCodeLibrary):  # type: ignore[misc]
    """A module whose functions are its own, but for the one that others call.

    Functions that are not would be those of modules compiled before in this process. What is kept
    on disk has copies, optimized once more: what is checked here would not be what runs later.
    """

    def finalize(self) -> None:
        self._entries = [f.name for f in self._final_module.functions if f.name[:6] == "cfunc."]
        # Link what called functions call, too: an _InlinedLibrary links nothing into itself.
        for called in self._linking_libraries:  # grows meanwhile
            for library in called._linking_libraries:
                if library not in self._linking_libraries:
                    self.add_linking_library(library)
        super().finalize()

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and function.name not in self._entries:
                function.linkage = "internal"
        # LLVM 22's level 3 dropped half of a loop's turns (tiles_int8.py, Q5_K).
        saved, config.OPT = config.OPT, min(2, int(config.OPT))
        try:
            super()._optimize_final_module()
            self._forget_errors()
        finally:
            config.OPT = saved

    def _forget_errors(self) -> None:
        """Remove the code that reports a kernel's exceptions.

        It calls functions of Python, which only Numba can link. Kernels raise nothing, but LLVM
        sees that late: the code stays in an entry into which it has not inlined the kernel.
        """
        passes = binding.create_new_module_pass_manager()
        passes.add_ipsccp_pass()
        passes.add_simplify_cfg_pass()
        passes.add_strip_dead_prototype_pass()
        passes.run(self._final_module, self._codegen._module_pass_manager()[1])

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def load_by_numba(self) -> None:
        """Load the code into Numba's engine."""
        super()._finalize_final_module()


class _KernelCompiler(_CFuncCompiler):  # type: ignore[misc]
    def _compile_core(self, args: Any, return_type: Any) -> Any:
        flags = compiler.Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        context = self.targetdescr.target_context
        library = _Library(context.codegen(), self.py_func.__qualname__)
        library.enable_object_caching()
        return compiler.compile_extra(
            self.targetdescr.typing_context, context, self.py_func, args=args,
            return_type=return_type, flags=self._customize_flags(flags), locals=self.locals,
            library=library, pipeline_class=self.pipeline_class,
        )  # fmt: skip
