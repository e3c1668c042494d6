#!/usr/bin/env bash
# Trains every run behind report.html: results/sweeps.sh DATA [RUNS].
# DATA is the folder of data sets (docs/experiments.md); RUNS is where runs go.  Finished runs are skipped, so it can be
# stopped and started again; `tar xf results/runs.tar.xz -C RUNS` first begins with those that are published.
set -euo pipefail
data=${1:?results/sweeps.sh DATA [RUNS]: which folder has the data sets?}
runs=${2:-runs/results}
sweep() { pullback sweep "$@" --seed 11 --out "$runs"; }

# Hidden clusters, three and ten; the steps of the SPIGOT family, fixed and free of scale.
sweep clusters --estimators all --seeds 10
sweep clusters --estimators spigot,spigot_ce,spigot_eg --set step_size=0.01,0.1,1,10,relative,polyak --seeds 10
sweep clusters-10 --estimators all --seeds 10

# Subsets, where bias and variance are exact.
sweep subset --estimators all --seeds 5

# Latent trees over ListOps: typed, untyped, and the published lengths.  Noise for labels that are pulled back, none for
# relaxations, as in the demo.
listops="gold,flat,chain,random,supervised,frozen,ste(noise=1),spigot(noise=1),spigot_ce(noise=1),spigot_eg(noise=1)"
listops+=",structured_attention,sparsemap,ste_marginals,ste_sparsemap,blackbox,identity,imle,perturb_and_map"
listops+=",stochastic_softmax,stochastic_sparsemap,perturbed,simple,reinforce(samples=4, baseline=leave_one_out)"
listops+=",sum_and_sample,topk_expectation"
sweep listops --estimators "$listops" --seeds 5
sweep listops --no-typed --estimators "$listops" --seeds 5
sweep listops-published --estimators "gold,flat,structured_attention,sparsemap,spigot_eg(noise=1),stochastic_softmax" --seeds 3

# Sentences: sentiment through a tree or a few words, parsing, names.
sweep polarity --data "$data" --estimators "flat,chain,random,frozen,ste,spigot,spigot_eg,structured_attention,sparsemap" --seeds 3
sweep polarity-bilstm --data "$data" --estimators frozen --seeds 3
sweep rationales --data "$data" --estimators "every_word,random,frozen,ste,spigot,spigot_eg,structured_attention,sparsemap" --seeds 3
sweep parsing --data "$data" --estimators "gold,flat,chain,reversed_chain,random,frozen,perceptron,crf,sparsemap" --set projective=false,true --seeds 3
sweep tagging --data "$data" --estimators gold,outside,random,frozen,perceptron,crf,sparsemap --set transitions=learned,none --seeds 3

# Digits in order, pronunciations.
sweep digits --estimators "gold,supervised,frozen,random,ste,spigot,spigot(noise=1),sparsemap,imle,perturbed,blackbox" --seeds 3
sweep alignment --data "$data" --language dut --estimators "diagonal,random,frozen,ste,spigot,spigot_eg,structured_attention,sparsemap,perturb_and_map,reinforce" --seeds 3
