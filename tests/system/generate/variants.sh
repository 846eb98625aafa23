#!/bin/bash
# Variant calling, one step after the other. Without the lines in which bcftools writes the date.
set -e
mkdir -p out
ln -s ../in/ref.fa out/ref.fa
bwa index out/ref.fa 2> /dev/null
samtools faidx out/ref.fa
for reads in in/*.1.fq; do
  sample=${reads##*/} sample=${sample%.1.fq}
  bwa mem -R "@RG\tID:$sample\tSM:$sample" out/ref.fa in/$sample.1.fq in/$sample.2.fq 2> /dev/null |
    samtools sort -o out/$sample.bam - 2> /dev/null
  samtools index out/$sample.bam
done
bcftools mpileup --no-version -f out/ref.fa out/*.bam 2> /dev/null |
  bcftools call --no-version --ploidy 2 -mv -Oz -o out/calls.vcf.gz
bcftools index out/calls.vcf.gz
bcftools stats out/calls.vcf.gz > out/stats.txt
freebayes -f out/ref.fa out/A.bam > out/freebayes.vcf
