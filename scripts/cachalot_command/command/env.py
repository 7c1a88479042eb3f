"""cachalot env: the lines to paste where something other than `cachalot run` starts the program."""

import json
import os
import re
import shlex
import sys

from cachalot_command.common.arguments import split
from cachalot_command.common.pattern import check_pattern
from cachalot_command.common.program import before_us, preloadable
from cachalot_command.common.tools import HERE, Failure, find_library
from cachalot_command.common.variables import check_conf, plain_conf

HELP = """\
usage: cachalot env [--output FILE] [--conf OPTIONS]
           [--for shell|slurm|mpirun|docker|apptainer|kubernetes|jupyter]

Prints the lines that put the cache in front of programs that something else
starts: a job script, a container, a notebook. Everything starts that way that
inherits the environment; what does not use CUDA notices nothing.
  --for shell       to source, or eval "$(cachalot env)" (the default)
        slurm       a batch script: reports, of killed tasks too, and a gate
        mpirun      Open MPI and MPICH
        docker      a Dockerfile with one file to copy, and `docker run`
        apptainer   Apptainer and Singularity
        kubernetes  a pod: environment, room in /dev/shm, reports that stay
        jupyter     a kernel.json: a running kernel cannot be changed any more
  --output, --conf  as for `cachalot run`; docker, kubernetes: a relative FILE
                    lies in /reports, another's folder is mounted in its stead

Exit code: 0, 2 usage, 125 the library was not found.
example: cachalot env --for slurm --conf max_split_size_mb:128 >>job.sh
"""

INSIDE, REPORTS = "/opt/cachalot", "/reports"  # in a container: the library's folder, and that of reports
SEQUENCE = re.compile(r"(%q\{[^}]*\}|%.)")
JOB_WIDE = re.compile(r"%q\{(SLURM_(?:JOB|ARRAY)\w*ID)\}")  # variables with the same value in the batch script and its tasks

SHELL = """\
export LD_PRELOAD={library}${{LD_PRELOAD:+:$LD_PRELOAD}}
export CACHALOT_SESSION="${{CACHALOT_SESSION:-$$-$(date +%s)}}"
export CACHALOT_OUTPUT={output}
{conf}"""

SLURM = """\
# In the batch script. LD_PRELOAD is given to the tasks alone; one report per task.
export CACHALOT_SESSION="slurm-$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}" CACHALOT_OUTPUT={output}
{conf}srun --export=ALL,LD_PRELOAD={library} python3 train.py
{check}"""
CHECK = 'srun --ntasks="${{SLURM_JOB_NUM_NODES:-1}}" --ntasks-per-node=1 {cachalot} harvest  # reports of killed tasks, on each node\n' \
    '{cachalot} check {reports} --require-reports "$SLURM_NTASKS" --max-oom 0\n'

MPIRUN = """\
# Open MPI:
mpirun -x LD_PRELOAD={library} -x CACHALOT_SESSION="$$-$(date +%s)" -x CACHALOT_OUTPUT={output}{more_x} ./program
# MPICH, Intel MPI:
mpiexec -genv LD_PRELOAD {library} -genv CACHALOT_SESSION "$$-$(date +%s)" -genv CACHALOT_OUTPUT {output}{more_genv} ./program
"""

DOCKER = """\
# Dockerfile (first: cp {library} {name}):
COPY {name} {inside}/
ENV LD_PRELOAD={inside}/{name} CACHALOT_OUTPUT={output}{more_env}

# Or an image as it is (the library needs glibc, and nothing else):
docker run --gpus all -v {library}:{inside}/{name}:ro -v "$PWD/reports":{reports} \\
    -e LD_PRELOAD={inside}/{name} -e CACHALOT_OUTPUT={output}{more_e} IMAGE python3 train.py
"""

APPTAINER = """\
APPTAINERENV_CACHALOT_OUTPUT={output}{more} \\
    apptainer exec --nv --bind {folder}:{inside}{reports} --env LD_PRELOAD={inside}/{name} IMAGE.sif python3 train.py
"""

KUBERNETES = """\
# Once: the claim keeps the reports when the pod goes. Pods of several nodes need a storage class for ReadWriteMany.
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: cachalot-reports}}
spec:
  accessModes: [ReadWriteMany]
  resources: {{requests: {{storage: 1Gi}}}}
---
# In the pod's specification; {inside} is in the image (`cachalot env --for docker`). A page needs less than
# 1 MiB of the 64 MiB that /dev/shm has; NCCL and data loaders need more, so most pods enlarge it anyway.
spec:
  containers:
  - name: train
    env:
    - {{name: LD_PRELOAD, value: {inside}/{name}}}
    - {{name: CACHALOT_OUTPUT, value: {output}}}
{conf}    volumeMounts:
    - {{name: shm, mountPath: /dev/shm}}
    - {{name: reports, mountPath: {reports}}}
  volumes:
  - {{name: shm, emptyDir: {{medium: Memory, sizeLimit: 8Gi}}}}
  - {{name: reports, persistentVolumeClaim: {{claimName: cachalot-reports}}}}
"""


def undivided(path, separators, what):
    """The quoted path. A path that another tool would split is refused."""
    for separator in separators:
        if separator in path:
            raise Failure(2, f"{path} has a `{separator}`, at which {what} splits: install the library, and write reports, where there is none")
    return shlex.quote(path)


def in_shell(library, output, conf):
    return SHELL.format(library=shlex.quote(library), output=shlex.quote(output or "cachalot.%e.%p.json"),
                        conf=f"export CACHALOT_CONF={shlex.quote(conf)}\n" if conf else "")


def in_json(value, indent=None):
    return json.dumps(value, indent=indent, ensure_ascii=False)  # escapes would depend on the locale


def in_glob(part):
    """A part of an output pattern as a glob for the shell of the batch script."""
    if job_wide := JOB_WIDE.fullmatch(part):
        return f'"${{{job_wide[1]}:-none}}"'
    if part != "%%" and SEQUENCE.fullmatch(part):
        return "*"
    return part and shlex.quote(part.replace("%%", "%"))


def glob_of(output):
    """A glob that finds all reports. If a name is taken the library adds to it, before `.json` if the name ends so."""
    name, end = (output[:-len(".json")], ".json") if output.endswith(".json") else (output, "")
    found = ("./" if name.startswith("-") else "") + "".join(map(in_glob, SEQUENCE.split(name)))
    return found + (end if found.endswith("*") else f".*{end[1:]}" if end else "*")


def in_slurm(library, output, conf):
    output = output or "cachalot-%q{SLURM_JOB_ID}/%h.%r.%p.json"
    if output != os.devnull and not any(map(JOB_WIDE.fullmatch, SEQUENCE.split(output))):
        raise Failure(2, f"--output {output}: name the job in it (%q{{SLURM_JOB_ID}}), else reports of earlier jobs are judged, too")
    check = CHECK.format(cachalot=shlex.quote(own_path()), reports=glob_of(output))
    return SLURM.format(library=undivided(library, ",", "srun's --export"), output=shlex.quote(output), check=check if output != os.devnull else "",
                        conf=f"export CACHALOT_CONF={shlex.quote(conf)}\n" if conf else "")


def in_mpirun(library, output, conf):
    conf = shlex.quote(conf) if conf else ""
    return MPIRUN.format(library=shlex.quote(library), output=shlex.quote(output or "reports/%h.%r.%p.json"),
                         more_x=conf and f" -x CACHALOT_CONF={conf}", more_genv=conf and f" -genv CACHALOT_CONF {conf}")


def folder_of(output):
    """The folder to mount for an absolute pattern: the part before the first `%`."""
    folder = REPORTS if output == os.devnull else os.path.normpath(os.path.dirname(output.partition("%")[0]))
    if folder in ("/", "//"):
        raise Failure(2, f"--output {output}: no folder can be mounted there; name one, as {REPORTS}/%h.%p.json")
    return folder


def in_docker(library, output, conf):
    conf, output = shlex.quote(conf) if conf else "", os.path.join(REPORTS, output or "%h.%p.json")
    library, reports = (undivided(path, ":", "docker's -v") for path in (os.path.realpath(library), folder_of(output)))
    return DOCKER.format(library=library, name="libcachalot.so", inside=INSIDE, output=shlex.quote(output), reports=reports,
                         more_env=conf and f" CACHALOT_CONF={conf}", more_e=conf and f" -e CACHALOT_CONF={conf}")


def in_apptainer(library, output, conf):
    """Lines for apptainer. Options and patterns may have commas, at which its --env splits; so variables carry them."""
    output = output or "cachalot.%e.%p.json"
    is_elsewhere = os.path.isabs(output) and output != os.devnull  # apptainer mounts the current folder by itself
    folder, reports = (undivided(path, ",:", "apptainer's --bind")
                       for path in (os.path.dirname(library), folder_of(output) if is_elsewhere else ""))
    return APPTAINER.format(folder=folder, name=os.path.basename(library), inside=INSIDE, output=shlex.quote(output),
                            reports=f" --bind {reports}" if is_elsewhere else "",
                            more=f" APPTAINERENV_CACHALOT_CONF={shlex.quote(conf)}" if conf else "")


def in_kubernetes(library, output, conf):
    output = os.path.join(REPORTS, output or "%h.%p.json")
    return KUBERNETES.format(name=os.path.basename(library), inside=INSIDE,
                             output=in_json(output), reports=in_json(folder_of(output)),
                             conf=f"    - {{name: CACHALOT_CONF, value: {in_json(conf)}}}\n" if conf else "")


def in_jupyter(library, output, conf):
    variables = {"LD_PRELOAD": library, "CACHALOT_OUTPUT": output or "cachalot.notebook.%p.json"}
    if conf:
        variables["CACHALOT_CONF"] = conf
    kernel = {"argv": ["python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
              "display_name": "Python 3 (cachalot)", "language": "python", "env": variables}
    return in_json(kernel, indent=2) + "\n"


FORMS = {"shell": in_shell, "slurm": in_slurm, "mpirun": in_mpirun, "docker": in_docker,
         "apptainer": in_apptainer, "kubernetes": in_kubernetes, "jupyter": in_jupyter}


def own_path():
    return os.path.join(HERE, "cachalot")


def main(arguments):
    """cachalot env."""
    words, options = split("env", arguments, (), ("--for", "--output", "--conf"))
    form = FORMS.get(options.get("--for", "shell"))
    if words or form is None:
        raise Failure(2, f"--for takes {', '.join(FORMS)}; see `cachalot env --help`" if not words
                      else f"`{words[0]}` is too much; see `cachalot env --help`")
    library, conf = find_library(), options.get("--conf")
    if conf is not None:
        conf = plain_conf(conf)
        check_conf(conf, "--conf", code=2)
    # A container mounts the folder under a name without a blank.
    mounted = form in (in_docker, in_apptainer, in_kubernetes)
    if "--output" in options:
        check_pattern(options["--output"], "--output", here=not mounted, code=2)
    where = library if mounted else preloadable(library)
    if where != library:
        print(f"cachalot: LD_PRELOAD takes no path with a blank or a colon, so the lines name {where}, a link beside the pages: "
              "print them anew after each start of the machine and on each node, or install to a path without", file=sys.stderr)
    if not mounted:  # other hooks of the same calls keep their place
        where = ":".join([*before_us(os.environ.get("LD_PRELOAD", ""), where), where])
    # Writes the bytes that were given, whatever the locale can encode.
    sys.stdout.buffer.write(os.fsencode(form(where, options.get("--output"), conf)))
    return 0
