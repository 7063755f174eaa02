# What waiting costs, by policy: simulated and through a real pool.
#   gnuplot -c docs/waiting/waiting.gp OUT.svg SIMULATED.jsonl REAL.jsonl
# where both files are what `spillway replay --compare --json` printed.
if (ARGC != 3) exit error "usage: gnuplot -c waiting.gp OUT.svg SIMULATED.jsonl REAL.jsonl"
of(key) = sprintf("< python3 docs/waiting/columns.py plot %s '%s' '%s'", key, ARG2, ARG3)

set terminal svg size 900,420 font "sans-serif,12" background rgb "white"
set output ARG1
set style data histograms
set style histogram clustered gap 1
set style fill solid 0.85 noborder
set boxwidth 0.9
set xtics rotate by -35 scale 0 nomirror
set ytics nomirror
set border 3
set grid ytics lc rgb "#dddddd"
set key top right

set rmargin 7
set bmargin 9
set multiplot layout 1,2
set title "first token, mean (s)"
set yrange [0:*]
plot of("ttft_mean_s") using 2:xtic(1) title "simulated" lc rgb "#9ecae1", \
     "" using 3 title "real pool" lc rgb "#08519c"
set title "wait of a deferred request, mean (s)"
set logscale y
set yrange [0.5:200]
plot of("wait_mean_s") using ($2 > 0 ? $2 : 1/0):xtic(1) title "simulated" lc rgb "#9ecae1", \
     "" using ($3 > 0 ? $3 : 1/0) title "real pool" lc rgb "#08519c"
unset multiplot
