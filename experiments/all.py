"""All experiments that fit on two cores, one after another: `make experiments DATA=folder`.

Each writes into a folder of its own below `--out`; `all.jsonl` there has a line for what has ended.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
# Script or script/part, minutes as on the pages of `sources/` (after ~ an estimate, where they have
# none), options (without them those of the part alone).
TABLE = """
fixed_lag 0.5; augmentation_effect ~5; augmentation_gap ~5; fourier_features ~5; bike_counts ~10
binary_approximations ~10; many_classes ~10; multi_output ~10; optimisers ~10; time_series ~10
vi_gibbs_magic ~10; warped_creep ~10; wine_ordinal ~10; heteroscedastic ~15; asynchronous ~15
likelihood_comparison ~15; cox_processes ~20; default_chains ~20; gibbs_against_hmc ~20
integrated_hyperparameters ~20; coupled_sites ~60; multiclass_variants ~90; learning_curves 6.3
asynchronous/pause ~5 --passes 1 --pause 0.5 --workers 1 2 4
black_box/estimators ~10; black_box/seismic ~30; black_box/mixtures ~45
black_box/small 13 --parts small --rows 2000 --splits 5 --sets boston creep concrete cancer
black_box/disasters 3.8 --parts small --rows 2000 --sets disasters
black_box/digits 3.7 --parts small --rows 2000 --sets usps --factors 0.1 0.25
black_box_at_size/delays 7.9 --parts delays --seconds 60; black_box_at_size/over-points ~20
black_box_at_size/network 5.0 --parts network --seconds 60
black_box_at_size/odd-even 6.2 --parts odd-even --seconds 120 --points 60 240
black_box_at_size/many-points 6.1 --parts odd-even --seconds 330 --points 1200 --batch-size 1200
black_box_at_size/table-3 20.9 --parts table-3 --seconds 120
black_box_at_size/ten-digits 12.9 --parts ten-digits --seconds 90
calibration/likelihoods ~240 --only exact variational Laplace EP augmented Gibbs
calibration/kernels ~40 --kernels; deep_models/toy ~30; deep_models/sampling ~60
deep_models/frequencies ~30; deep_models/shallow ~35 --parts shallow --seconds 75
deep_models/depth ~20 --parts depth --seconds 330 --hidden 0 1 9; multi_kernel/digits ~30
multi_kernel/recovery ~30; multi_kernel/schemes ~30 --parts schemes --schemes (a) (b) (c) (e) ours
deep_models/depth-30 21 --parts depth --seconds 900 --hidden 29
deep_models/beside 29 --parts beside --seconds 330
multi_kernel/scheme-d 10 --parts schemes --schemes (d) --share 0.1
multi_kernel/scheme-f 3.5 --parts schemes --schemes (f) --share 0.4
neighbour_chains/moves ~20 --parts moves --draws 200
particle_flows/network 13 --parts network --rows 60000 --steps 400
particle_flows/others ~20 --parts gaussian spectrum low-rank banana logistic
preconditioners/concrete 4.7 --sets concrete --cap 500
preconditioners/large 2.4 --sets power protein --rows 2000 --cap 500
preconditioners/small ~5 --rows 400 --cap 1000; pseudo_marginal/chains ~40 --parts estimates chains
pseudo_marginal/pima 20 --parts pima --rows 768
pseudo_marginal/classifiers 3; sampler_comparison/few-rows ~60 --tables 2 3 5
sampler_comparison/real-sets ~60 --tables 6; sampler_comparison/400-rows 25 --tables 5 --rows 400
sampler_comparison/theta 9 --tables 3 4 --rows 400 --models LRG --share 0.15
sampler_comparison/table-4 15 --tables 4 --rows 400 --models LCX VLT ORD --share 0.15
sparse_chains/coal ~15; sparse_chains/mnist 14; sparse_chains/robust-max ~20
sparse_chains/tuning ~30; sparse_chains/pines ~60; sparse_chains/image ~120
unbiased_solver/chains ~10 --parts chains --iterations 250
unbiased_solver/large 6 --parts large --large-iterations 1
unbiased_solver/study ~5 --parts study --rows 400
"""


class Part(NamedTuple):
    name: str
    script: str
    minutes: str
    command: str


def parts_of(table: str) -> Iterator[Part]:
    for name, minutes, *options in map(str.split, re.split("[;\n]", table.strip())):
        script, _, part = name.partition("/")
        options = options or (["--parts", part] if part else [])
        yield Part(name, script, minutes, shlex.join([f"{script}.py", *options]))


def records(log: Path) -> dict[str, dict[str, Any]]:
    """The last line of each part that has ended."""
    lines = log.read_text().splitlines() if log.exists() else []
    return {record["part"]: record for record in map(json.loads, lines)}


def run(part: Part, out: Path, data_dir: Path | None, scripts: Path) -> dict[str, Any]:
    """Seconds and exit status of a part, which prints into its folder."""
    folder = out / part.name
    folder.mkdir(parents=True, exist_ok=True)
    script, *options = shlex.split(part.command)
    if "real_data=False" not in (scripts / script).read_text():
        options += ["--data-dir", str(data_dir)]
    call = [sys.executable, str(scripts / script), *options, "--out", str(folder)]
    started = time.perf_counter()
    with (folder / "printed.txt").open("w") as printed:
        status = subprocess.run(call, stdout=printed, stderr=subprocess.STDOUT).returncode
    seconds = round(time.perf_counter() - started, 1)
    return {"part": part.name, "command": part.command, "seconds": seconds, "status": status}


def main(argv: Sequence[str] | None = None, table: str = TABLE, scripts: Path = HERE) -> int:
    options = argparse.ArgumentParser(description="All that fits on two cores.")
    options.add_argument("--data-dir", type=Path, help="folder of the .npz files")
    options.add_argument("--out", type=Path, default=Path("experiment-results"))
    options.add_argument("--only", nargs="+", help="parts, or scripts with all of theirs")
    options.add_argument("--again", action="store_true", help="what ended well, too")
    options.add_argument("--list", action="store_true", help="parts and their expected minutes")
    arguments = options.parse_args(argv)
    parts, only = list(parts_of(table)), set(arguments.only or ())
    if unknown := only - {name for part in parts for name in (part.name, part.script)}:
        options.error(f"no part or script {', '.join(sorted(unknown))}; see --list")
    parts = [part for part in parts if not only or {part.name, part.script} & only]
    if arguments.list:
        for part in parts:
            print(f"{part.name:30}{part.minutes.replace('~', 'about '):>10} min  {part.command}")
        minutes = sum(float(part.minutes.lstrip("~")) for part in parts)
        print(f"{len(parts)} parts, {minutes / 60:.1f} hours")
        return 0
    if arguments.data_dir is None:
        options.error("give --data-dir, the folder of the .npz files")
    log = arguments.out / "all.jsonl"
    for part in parts:
        known = records(log).get(part.name, {})
        if not arguments.again and (known.get("command"), known.get("status")) == (part.command, 0):
            continue
        print(part.command, flush=True)
        record = json.dumps(run(part, arguments.out, arguments.data_dir, scripts))
        with log.open("a") as file:
            print(record, file=file)
        print(record, flush=True)
    ended = [records(log)[part.name] for part in parts]
    failed = [record["part"] for record in ended if record["status"] != 0]
    hours = sum(record["seconds"] for record in ended) / 3600
    print(f"{len(ended)} parts, {hours:.2f} hours; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
