#!/bin/bash
# wordcount.sh            count words the map-reduce way; prints the five most frequent ones
# wordcount.sh --check    recount the text of the last run in another way and compare
#
# A small workflow to trace, of the shape that many real ones have. It needs bash, coreutils,
# awk and gzip, invents its own input, and works in wordcount.out/ under the current directory
# (removed and made again at each start):
#
#     flowtrace run -o wordcount.db -- examples/wordcount.sh
#
#   generate ──> text ──> split ──> part.0 … part.3
#       part.N ──> map ──> part.N.r0 … part.N.r2 ──> gzip        two at a time
#       part.N ──> archive ──> part.N.gz, part.N.sha256          one after another
#       *.rR.gz ──> reduce ──> counts.R                          two at a time
#       counts.* ──> merge ──> top100
#
# Three things in it are not as good as they could be, on purpose, for a trace to find:
#  - archive compresses and checksums the parts one after another: one core is idle meanwhile,
#    nothing after it needs what it makes, and reduce waits for it all the same;
#  - words go to their reducer by their first letter, so one reducer has most of the work;
#  - a single process generates the text, and everything else waits for it.
#
# Environment: WORDS (words in the text, default 1000000), JOBS (tasks at once, default 2).
set -euo pipefail
export LC_ALL=C
words=${WORDS:-1000000} jobs=${JOBS:-2}
out=wordcount.out reducers=3 parts=4

# --- the parts of the workflow ------------------------------------------------------------------

# Text of a fixed pseudo-random generator, so that every run and every machine makes the same.
# The word of rank r appears about 1/r times as often as the first (Zipf's law); words are
# made of syllables, short ones first, and a line is a sentence.
generate() {
  awk -v words="$words" '
    function random() { x = (x * 69069 + 12345) % 4294967296; return x / 4294967296 }
    BEGIN {
      x = 20150412; ranks = 20000; scale = log(ranks)
      n = split("ta no si re ma ko li ve du pa fo ne to ra mi se", syllable, " ")
      for (r = 1; r < ranks; r++) {
        word = ""
        for (q = r; q > 0; q = int(q / n)) word = word syllable[q % n + 1]
        vocabulary[r] = word
      }
      for (i = 1; i <= words; i++) {
        word = vocabulary[int(exp(random() * scale))]
        if (start || i == 1) word = toupper(substr(word, 1, 1)) substr(word, 2)
        start = random() < 0.08
        printf "%s%s", word, start ? ".\n" : random() < 0.1 ? ", " : " "
      }
      if (!start) print ""
    }' > "$out/text"
}

# map PART: one word per line, lower case, each into the file of its reducer.
map() {
  tr -cs 'A-Za-z' '\n' < "$out/parts/$1" | tr 'A-Z' 'a-z' | awk -v into="$out/map/$1" '
    /./ { print > (into (/^[a-m]/ ? ".r0" : /^[n-s]/ ? ".r1" : ".r2")) }'
}

# archive PART: keep the part, compressed well, with its checksum.
archive() {
  gzip -9 -n -c "$out/parts/$1" > "$out/archive/$1.gz"
  sha256sum "$out/parts/$1" "$out/archive/$1.gz" > "$out/archive/$1.sha256"
}

# reduce R: count the words that all maps sent to reducer R, the most frequent first.
reduce() {
  zcat "$out"/map/*.r"$1".gz | sort | uniq -c | sort -k1,1nr -k2 > "$out/counts.$1"
}

# The counts are sorted already, so merging them is enough.
merge() {
  sort -m -k1,1nr -k2 "$out"/counts.* | awk 'NR <= 100' > "$out/top100"
}

# --- running tasks side by side -----------------------------------------------------------------

running=0
task() { # task COMMAND…: in the background, not more than $jobs at once
  if ((running == jobs)); then wait -n; running=$((running - 1)); fi
  "$@" &
  running=$((running + 1))
}
barrier() { # until all of them have ended; one that failed ends the script
  while ((running > 0)); do wait -n; running=$((running - 1)); done
}

# --- check --------------------------------------------------------------------------------------

# Everything in one table of one awk: no split, no partition, no merge.
check() {
  [ -f "$out/text" ] || { echo "wordcount.sh: no $out/text here; run the workflow first" >&2; exit 2; }
  awk 'BEGIN { RS = "[ ,.\n]+" } /./ { n[tolower($0)]++ } END { for (w in n) print n[w], w }' "$out/text" |
    sort -k1,1nr -k2 | awk 'NR <= 100' | cmp - <(awk '{ print $1, $2 }' "$out/top100") ||
    { echo "wordcount.sh: WRONG: $out/top100 is not what the text says" >&2; exit 1; }
  (for part in "$out"/archive/*.sha256; do sha256sum --quiet -c "$part"; done)
  echo "PASS"
}

# --- the workflow -------------------------------------------------------------------------------

case ${1:-} in
  '') ;;
  --check) check; exit ;;
  *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

rm -rf "$out"
mkdir -p "$out/parts" "$out/map" "$out/archive"
generate
split -n "l/$parts" -d -a 1 "$out/text" "$out/parts/part."

for part in "$out"/parts/*; do task map "${part##*/}"; done
barrier
for file in "$out"/map/*; do task gzip -n "$file"; done
barrier
for part in "$out"/parts/*; do archive "${part##*/}"; done # could be tasks, and need no barrier
for ((r = 0; r < reducers; r++)); do task reduce $r; done
barrier
merge
head -n 5 "$out/top100"
