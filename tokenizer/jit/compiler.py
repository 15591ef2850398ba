"""How numba compiles kernels: fewer passes, and machine code of whole kernels only.

An inline kernel is typed, written in LLVM's language and optimized once, and linked into each kernel that
calls it. numba would also make machine code of it that nobody runs. (Optimizing it in its callers alone saves
as much again, but some of them become a tenth slower.) numba's passes for closures, generators, literals,
array expressions and overloaded functions find nothing in loops over flat arrays.
"""

from typing import Any

from numba.core import typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import PassManager

_PASSES = (
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.GenericRewrites,
    untyped_passes.ReconstructSSA,
    typed_passes.NopythonTypeInference,
    typed_passes.PreLowerStripPhis,
    typed_passes.NoPythonSupportedFeatureValidation,
    typed_passes.IRLegalization,
    typed_passes.AnnotateTypes,
    typed_passes.NativeLowering,
    typed_passes.NoPythonBackend,
)


class KernelCompiler(CompilerBase):  # type: ignore[misc]
    """Compiles a kernel."""

    def define_pipelines(self) -> list[Any]:
        """The only way to compile: as machine code."""
        passes = PassManager("kernel")
        for each in _PASSES:
            passes.add_pass(each, each.__name__)
        passes.finalize()
        return [passes]


class InlineCompiler(KernelCompiler):
    """Compiles an inline kernel, as a part of others."""

    def compile_extra(self, func: Any) -> Any:
        """Compile a function into LLVM's language."""
        self.state.library = _Part(self.state.targetctx.codegen(), func.__qualname__)
        return super().compile_extra(func)


class _Part(JITCodeLibrary):  # type: ignore[misc]
    """A function and those that it calls in LLVM's language, to be linked into kernels."""

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._optimize_final_module()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """There is no machine code."""
        return 0

    @property
    def codegen(self) -> Any:
        """What numba tells where the environment of the machine code is."""
        return self

    def set_env(self, name: str, env: Any) -> None:
        """There is no machine code."""
