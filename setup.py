"""The build steps that pyproject.toml cannot express: the cffi module, the supervisor, the guests' command."""

import importlib.util
from pathlib import Path
from types import ModuleType

from setuptools import setup
from setuptools.command.build_ext import build_ext

PROJECT = Path(__file__).resolve().parent
NATIVE = Path("callgate", "kernel", "native")

if not (PROJECT / "src" / "callgate" / "kernel").is_dir():
    raise SystemExit(
        "callgate: src/callgate/kernel must be a link to the folder kernel. Archives in ZIP format and checkouts with "
        "core.symlinks=false lose it; clone with git, or use the source distribution."
    )


def native_build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("callgate_native_build", PROJECT / "kernel" / "native" / "build.py")
    if spec is None or spec.loader is None:
        raise SystemExit("callgate: kernel/native/build.py is missing")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuildNative(build_ext):
    """build_ext that also makes the supervisor: in the wheel's tree, or next to the sources for an editable install."""

    def run(self) -> None:
        build = native_build()
        build.write_syscall_table()
        super().run()
        try:
            build.build_executable(self._executable(build.EXECUTABLE), Path(self.build_temp, "supervisor"))
            build.build_guest_command(self._executable(build.GUEST_COMMAND))
        except build.BuildError as error:
            raise SystemExit(f"callgate: {error}") from None

    def _executable(self, name: str) -> Path:
        root = PROJECT / "src" if self.inplace or getattr(self, "editable_mode", False) else Path(self.build_lib)
        return root / NATIVE / name

    def get_outputs(self) -> list[str]:
        build = native_build()
        return [*super().get_outputs(), *(str(self._executable(name)) for name in (build.EXECUTABLE, build.GUEST_COMMAND))]


setup(
    cmdclass={"build_ext": BuildNative},
    cffi_modules=["kernel/native/build.py:ffibuilder"],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
