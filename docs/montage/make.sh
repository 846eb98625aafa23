#!/bin/bash
# make.sh WORKLOAD DIRECTORY    trace the Montage workload and remake the tables and figures of this directory
#
# WORKLOAD is a directory with data.sh DATA_DIR and run.sh DATA_DIR JOBS, as that of the project's reference
# workloads; it needs Montage (apt-get install montage montage-gridtools make python3-astropy) and Graphviz.
# DIRECTORY is a scratch directory. FLOWTRACE (default: flowtrace) is the program.
set -euo pipefail
workload=$(cd "${1:?usage: make.sh WORKLOAD DIRECTORY}" && pwd) scratch=${2:?usage: make.sh WORKLOAD DIRECTORY}
here=$(cd "${0%/*}" && pwd) flowtrace=${FLOWTRACE:-flowtrace}
mkdir -p "$scratch"
[ -d "$scratch/in" ] || "$workload/data.sh" "$scratch"
cd "$scratch"
rm -rf out
"$flowtrace" run --force -o montage.db -- "$workload/run.sh" "$scratch" 2 2> run.txt || { cat run.txt >&2; exit 1; }

ft() { "$flowtrace" "$1" montage.db "${@:2}"; }
picture() { ft "${@:2}" --format svg --force -o "$here/$1" 2>/dev/null; }
ft stats rules > "$here/table-5.txt"
ft stats calls > "$here/table-4.txt"
ft tree > "$here/figure-11-tree.txt"
picture figure-11-tree.svg tree
picture figure-12-life.svg stats cdf --of life --only m
picture figure-13-dag.svg dag --by twins
# A sub-workflow with all its processes: what one fitted difference of two tiles is made of.
fit=$(ft query --format csv "SELECT MIN(path) FROM files WHERE path LIKE '%/fit/fit.%.txt'" | tail -n 1 | tr -d '\r')
picture figure-14-part.svg dag --by process --ancestors-of "$fit"
picture figure-6-calls.svg stats hist --of latency
picture figures-7-8-requests.svg stats hist --of request-size --only m
picture figures-9-10-bytes.svg stats hist --of process-bytes --only m
picture figure-5-latency.svg stats calls
ft critical-path > "$here/critical-path.txt"
ft dag --format text > "$here/shape.txt"

# The counts are those that the Makefile asks for.
for expected in mProject:18 mDiffFit:33 mBackground:18 mImgtbl:7 mAdd:3 mShrink:3 mViewer:4 mConcatFit:3 mBgModel:3; do
  found=$(ft query --format csv "SELECT COUNT(*) FROM processes WHERE rule = '${expected%:*}' AND origin = 'exec'" | tail -n 1 | tr -d '\r')
  [ "$found" = "${expected#*:}" ] || { echo "make.sh: $found × ${expected%:*}, not ${expected#*:}" >&2; exit 1; }
done
echo "PASS: counts equal the Makefile's"
