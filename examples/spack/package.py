# A recipe for Spack. Put it into packages/cachalot/package.py of a repository of recipes (`spack repo create`), then
#     spack dev-build cachalot@main      (in a clone of Cachalot)
from spack_repo.builtin.build_systems.meson import MesonPackage

from spack.package import *


class Cachalot(MesonPackage):
    """A caching allocator in front of cudaMalloc for unmodified CUDA programs, and JSON reports of their GPU memory."""

    license("MIT")

    version("main", branch="main")

    depends_on("c", type="build")
    depends_on("meson@1.0:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("jansson~shared cflags=-fPIC", type="build")  # becomes a part of the library
    depends_on("cuda@13:", type="build")  # headers only
    depends_on("python@3.9:", type=("build", "run"))

    def meson_args(self):
        return ["-Dtests=false", f"-Dtoolkit={self.spec['cuda'].prefix}"]
