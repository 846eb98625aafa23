//! Processes that work more than the others.

use crate::run::Node;

/// True if several processes work more than all others by this factor in both readings of the
/// dependencies. (For one process the middle of both is enough. Of several, a wait for one may look
/// like work of the next.)
pub(super) fn stand_apart(
    work_s: &[(f64, f64)],
    hidden: &[Node],
    several: &[Node],
    gate: f64,
) -> bool {
    let all = 0..work_s.len() as Node;
    let others = all.filter(|node| !several.contains(node) && !hidden.contains(node));
    let next = others.map(|node| work_s[usize::from(node)].1);
    let next = next.fold(0.0, f64::max);
    let least = several.iter().map(|&node| work_s[usize::from(node)].0);
    least.fold(f64::INFINITY, f64::min) >= gate * next
}

/// The processes that work more than the others by at least the factor `gate`, and that factor. There
/// are at most half of all processes, and more than one only if `may_be` allows it.
pub(super) fn loaded(
    work: &[f64],
    gate: f64,
    may_be: impl Fn(&[Node]) -> bool,
) -> Option<(Vec<Node>, f64)> {
    let mut order: Vec<Node> = (0..work.len() as Node)
        .filter(|&node| work[usize::from(node)] > 0.0)
        .collect();
    order.sort_by(|&a, &b| work[usize::from(b)].total_cmp(&work[usize::from(a)]));
    if order.len() < 2 {
        return None;
    }
    let ratio = |k: usize| work[usize::from(order[k - 1])] / work[usize::from(order[k])];
    let mut several = (2..=order.len() / 2).rev();
    if let Some(k) = several.find(|&k| ratio(k) >= gate && may_be(&order[..k])) {
        return Some((order[..k].to_vec(), ratio(k)));
    }
    let one = if ratio(1) >= gate { 1 } else { 0 };
    Some((order[..one].to_vec(), ratio(1)))
}
