"""A redistribution looked at: who sends whom how much, in which step, and what that takes on a network.

    python schedule_looked_at.py [PICTURE.svg]

In a notebook, `plan.explain()` and a layout show themselves as pictures.
"""

import sys

import reshard

plan = reshard.Plan("16/3 of 240", "16/5 of 240", "f8")  # example 1 of Desprez et al.
traffic = plan.traffic()
print(f"{len(traffic)} messages; rank 0 sends {traffic.toarray()[0].tolist()}")

for strategy in ("optimal", "greedy", "caterpillar"):
    schedule = plan.schedule(strategy)
    times = [plan.simulate(strategy, network=network, alpha=2e-6, beta=1e-8).makespan for network in ("flat", "ring")]
    print(
        f"{strategy:12} {len(schedule)} steps (none has fewer than {schedule.bound_steps}), cost {schedule.total_cost}; "
        f"{1e6 * times[0]:.1f} us on a switch, {1e6 * times[1]:.1f} us on a ring"
    )
assert plan.schedule().optimal_steps and plan.schedule().optimal_cost

better = reshard.Plan("2x4/8x8 of 64x64", "2x4/8x8 rank-order=col of 64x64").relabel()
print(f"on ranks {better.layout} {better.moved_after} elements move instead of {better.moved_before}")

if len(sys.argv) > 1:
    plan.explain().save(sys.argv[1])
    print(f"drawn to {sys.argv[1]}")
