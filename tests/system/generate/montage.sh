#!/bin/bash
# The mosaic of three bands, one step after the other, as somebody would write it down.
set -e
for band in j h k; do
  mkdir -p out/$band/{proj,diff,fit,corr}
  mImgtbl in/$band out/$band/rimages.tbl
done
mMakeHdr out/j/rimages.tbl out/region.hdr
for band in j h k; do
  out=out/$band
  for tile in in/$band/t*.fits; do
    ${PROJECT:-mProject} -X "$tile" $out/proj/"${tile##*/}" out/region.hdr
  done
  mImgtbl $out/proj $out/pimages.tbl
  mOverlaps $out/pimages.tbl $out/diffs.tbl
  # How many there are is known only now.
  { read -r _; read -r _
    while read -r one two plus minus diff; do
      fit=$(printf fit.%06d.%06d.txt $one $two)
      mDiffFit -s $out/fit/$fit $out/proj/$plus $out/proj/$minus $out/diff/$diff out/region.hdr
    done
  } < $out/diffs.tbl
  awk 'NR == 1 { printf "| %6s | %6s | %20s |\n| int    | int    | char                 |\n", "cntr1", "cntr2", "stat" }
       NR > 2 { printf "  %6d   %6d   fit.%06d.%06d.txt\n", $1, $2, $1, $2 }' $out/diffs.tbl > $out/statfile.tbl
  mConcatFit $out/statfile.tbl $out/fits.tbl $out/fit
  mBgModel -i 100000 $out/pimages.tbl $out/fits.tbl $out/corrections.tbl
  for tile in in/$band/t*.fits; do
    (cd $out/proj && mBackground -t "${tile##*/}" ../corr/"${tile##*/}" ../pimages.tbl ../corrections.tbl)
  done
  mImgtbl $out/corr $out/cimages.tbl
  mAdd -p $out/corr $out/cimages.tbl out/region.hdr $out/mosaic.fits
  mShrink $out/mosaic.fits $out/small.fits 2
  mViewer -ct 1 -gray $out/small.fits -1s max gaussian -out $out/mosaic.png
done
stretch="-1s max gaussian-log"
mViewer -blue out/j/small.fits $stretch -green out/h/small.fits $stretch -red out/k/small.fits $stretch -out out/mosaic-color.png
