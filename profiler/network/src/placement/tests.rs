use super::*;
use crate::matrix::Matrix;

/// The challenge of B.4.4: hosts 1 to 3 are joined at 100, hosts 4 to 6 at 1000, and both groups at 10.
fn challenge() -> Problem {
    let mut capacities = Matrix::new(6);
    let mut demands = Matrix::new(4);
    for a in 0..6 {
        for b in (0..6).filter(|&b| b != a) {
            *capacities.at_mut(a, b) = match (a < 3, b < 3) {
                (true, true) => 100.0,
                (false, false) => 1000.0,
                _ => 10.0,
            };
        }
    }
    for i in 0..3 {
        for j in (0..3).filter(|&j| j != i) {
            *demands.at_mut(i, j) = 100.0;
        }
    }
    *demands.at_mut(0, 3) = 5.0;
    *demands.at_mut(3, 0) = 5.0;
    Problem {
        demands,
        capacities,
        latencies: None,
        latency_weight: 0.0,
        may_relay: true,
    }
}

#[test]
fn the_challenge_is_solved() {
    let problem = challenge();
    let (best, feasible) = exhaustive(&problem).unwrap();
    assert_eq!(best.objective, 5410.0);
    assert_eq!(feasible.len(), 36, "feasible of 360");
    assert_eq!(
        feasible.iter().filter(|&&value| value == 5410.0).count(),
        18
    );
    assert_eq!(feasible.iter().filter(|&&value| value == 10.0).count(), 18);
    let mut heavy = best.hosts[..3].to_vec();
    heavy.sort_unstable();
    assert_eq!(heavy, [3, 4, 5]);
    assert!(best.hosts[3] < 3);
    // The greedy finds the optimum. Annealing keeps it, and finds it from a bad start.
    let greedy = problem.place(breadth_first(&problem).unwrap());
    assert_eq!(greedy.objective, 5410.0);
    let annealed = anneal(&problem, &greedy, Annealing::default());
    assert_eq!(annealed.objective, 5410.0);
    let bad = problem.place(vec![0, 1, 2, 3]);
    assert!(bad.objective < 5410.0);
    let found = anneal(&problem, &bad, Annealing::default());
    assert_eq!((found.objective, found.unmapped.len()), (5410.0, 0));
    assert_eq!(super::best(&problem).unwrap().objective, 5410.0);
}

#[test]
fn greedy_is_never_better_than_the_optimum() {
    let mut state = 7u64;
    let mut random = |most: f64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 40) as f64 / (1u64 << 24) as f64 * most
    };
    for _ in 0..10 {
        let mut problem = challenge();
        problem.may_relay = false;
        for a in 0..6 {
            for b in 0..6 {
                *problem.capacities.at_mut(a, b) = 50.0 + random(500.0);
            }
        }
        for i in 0..4 {
            for j in 0..4 {
                *problem.demands.at_mut(i, j) = random(40.0);
            }
        }
        let (best, _) = exhaustive(&problem).unwrap();
        for hosts in [
            breadth_first(&problem).unwrap(),
            by_lists(&problem, None).unwrap(),
        ] {
            let greedy = problem.place(hosts);
            assert!(greedy.objective <= best.objective + 1e-9);
            let annealed = anneal(&problem, &greedy, Annealing::default());
            assert!(!is_better(&greedy, &annealed));
        }
    }
}

#[test]
fn four_on_four_have_24_ways() {
    let mut n = 0;
    permute(4, 4, &mut Vec::new(), &mut |_| n += 1);
    assert_eq!(n, 24, "the text says 12");
}

#[test]
fn lists_place_pairs_then_stragglers() {
    let mut problem = challenge();
    // Five processes: two pairs, and one process without traffic.
    problem.demands = Matrix::new(5);
    *problem.demands.at_mut(1, 4) = 50.0;
    *problem.demands.at_mut(0, 2) = 20.0;
    let hosts = by_lists(&problem, None).unwrap();
    assert!(hosts[1] >= 3 && hosts[4] >= 3);
    let mut distinct = hosts.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 5);
    assert_eq!(greedy::migrations(&[0, 1, 2, 3, 4], &[0, 1, 2, 4, 3]), 2);
    problem.demands = Matrix::new(7);
    assert_eq!(by_lists(&problem, None), None);
    assert_eq!(breadth_first(&problem), None);
}

#[test]
fn links_are_those_with_the_most_traffic() {
    let problem = challenge();
    let all = links(&problem.demands, &[3, 4, 5, 0], Limit::Count(99));
    assert_eq!(all.len(), 8);
    assert_eq!(
        links(&problem.demands, &[3, 4, 5, 0], Limit::Intensity(50.0)).len(),
        6
    );
    assert_eq!(
        links(&problem.demands, &[3, 4, 5, 0], Limit::Share(0.5)).len(),
        4
    );
    assert!(links(&problem.demands, &[0, 0, 0, 0], Limit::Count(9)).is_empty());
}

#[test]
fn ways_avoid_loaded_links() {
    let mut links = Matrix::new(3);
    for (a, b) in [(0, 1), (1, 2), (0, 2)] {
        *links.at_mut(a, b) = true;
    }
    let ways = least_loaded_route(&links, &[(0, 2, 5.0), (0, 2, 5.0), (2, 0, 1.0)]);
    assert_eq!(ways, [Some(vec![0, 2]), Some(vec![0, 1, 2]), None]);
}

#[test]
fn cost_of_a_superstep() {
    assert_eq!(bsp_cost(10.0, (2.0, 3.0), (4.0, 1.0), 2.0), 10.0);
}

/// Hosts that are alike but for errors of measurement: no move is worthwhile.
#[test]
fn no_move_is_advised_that_gains_nothing() {
    let mut problem = challenge();
    problem.may_relay = false;
    for a in 0..6 {
        for b in (0..6).filter(|&b| b != a) {
            // Equal but for errors of measurement.
            *problem.capacities.at_mut(a, b) = 1000.0 + (a + b) as f64;
        }
    }
    let now = problem.place(vec![0, 1, 2, 3]);
    assert!(super::best(&problem).unwrap().objective > now.objective);
    assert_eq!(advise(&problem, &now).unwrap(), now);
    // With nine hosts, which are annealed, the same holds.
    let mut capacities = Matrix::new(9);
    for a in 0..9 {
        for b in (0..9).filter(|&b| b != a) {
            *capacities.at_mut(a, b) = 1000.0;
        }
    }
    problem.capacities = capacities;
    let now = problem.place(vec![0, 1, 2, 3]);
    assert_eq!(advise(&problem, &now).unwrap(), now);
}

/// Only the process on the wrong side moves, although many other mappings are as good.
#[test]
fn only_moves_that_gain_are_advised() {
    let mut problem = challenge();
    problem.may_relay = false;
    let now = problem.place(vec![3, 4, 0, 1]);
    assert!(!now.unmapped.is_empty(), "100 do not fit through 10");
    let advised = advise(&problem, &now).unwrap();
    assert_eq!(advised.hosts, [3, 4, 5, 1]);
    // The advised placement has the whole gain of the best mapping.
    assert_eq!(advised.objective, super::best(&problem).unwrap().objective);
    // From the best placement no move is advised.
    assert_eq!(advise(&problem, &advised).unwrap(), advised);
}
