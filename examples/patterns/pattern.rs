//! Who talks to whom.

/// Two ranks; the first one begins. From a higher to a lower rank messages go one way alone.
pub(super) type Edge = (usize, usize);

/// The edges of a pattern, in the one order in which all ranks go through them.
pub(super) fn edges(pattern: &str, ranks: usize) -> Result<Vec<Edge>, String> {
    let (name, dimensions) = pattern.split_once(':').unwrap_or((pattern, ""));
    let mut edges = match name {
        "ring" => grid(&[ranks], true),
        "bus" => grid(&[ranks], false),
        "mesh" | "torus" => {
            let sizes: Result<Vec<usize>, _> = dimensions.split('x').map(str::parse).collect();
            let sizes = sizes.map_err(|_| format!("{name} needs sizes, as in {name}:2x2"))?;
            if sizes.iter().product::<usize>() != ranks {
                return Err(format!("{pattern} is not for {ranks} ranks"));
            }
            grid(&sizes, name == "torus")
        }
        "hypercube" if ranks.is_power_of_two() => {
            let bits = ranks.trailing_zeros();
            let ranks = (0..ranks).flat_map(|a| (0..bits).map(move |bit| (a, a ^ (1 << bit))));
            ranks.filter(|(a, b)| a < b).collect()
        }
        "hypercube" => return Err(format!("a hypercube is not for {ranks} ranks")),
        // From the leaves to the root, the deepest first.
        "tree" => {
            return Ok((1..ranks)
                .rev()
                .map(|rank| (rank, (rank - 1) / 2))
                .collect());
        }
        "all-to-all" => (0..ranks)
            .flat_map(|a| (a + 1..ranks).map(move |b| (a, b)))
            .collect(),
        _ => return Err(format!("there is no pattern {name}")),
    };
    edges.sort_unstable();
    edges.dedup();
    Ok(edges)
}

/// A grid of any dimensions, closed to a torus or not.
fn grid(sizes: &[usize], is_closed: bool) -> Vec<Edge> {
    let ranks: usize = sizes.iter().product();
    let mut edges = Vec::new();
    for rank in 0..ranks {
        let mut step = 1;
        for &size in sizes {
            let at = rank / step % size;
            let next = if at + 1 < size {
                Some(rank + step)
            } else if is_closed && size > 2 {
                Some(rank - at * step)
            } else {
                None
            };
            edges.extend(next.map(|next| (rank.min(next), rank.max(next))));
            step *= size;
        }
    }
    edges
}
