//! The lower convex hull of points that arrive in the order of time.

/// Number of points that are kept before they are reduced to their hull.
const CHUNK: usize = 8192;

/// Time, and difference of two clocks, both in ns.
pub(super) type Point = (f64, f64);

/// A lower hull of any number of points in little memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Hull {
    points: Vec<Point>,
    /// Number of the points, from the first on, that are a hull already.
    reduced: usize,
    sum_t: f64,
    count: u64,
}

impl Hull {
    pub(super) fn add(&mut self, point: Point) {
        self.points.push(point);
        self.sum_t += point.0;
        self.count += 1;
        if self.points.len() >= self.reduced + CHUNK {
            self.reduce();
        }
    }

    /// Adds the points of another hull.
    pub(super) fn join(&mut self, other: &Hull) {
        self.points.extend(&other.points);
        self.sum_t += other.sum_t;
        self.count += other.count;
        self.reduce();
    }

    pub(super) fn len(&self) -> u64 {
        self.count
    }

    /// Mean time of the points.
    pub(super) fn mean(&self) -> f64 {
        self.sum_t / self.count.max(1) as f64
    }

    /// The corners, from left to right (Andrew's monotone chain).
    pub(super) fn corners(&mut self) -> &[Point] {
        self.reduce();
        &self.points
    }

    fn reduce(&mut self) {
        self.points
            .sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut hull: Vec<Point> = Vec::with_capacity(64);
        for &point in &self.points {
            // Among points of one time the lowest comes first.
            if hull.last().is_some_and(|last| last.0 == point.0) {
                continue;
            }
            while let [.., a, b] = hull[..]
                && (b.0 - a.0) * (point.1 - a.1) - (b.1 - a.1) * (point.0 - a.0) <= 0.0
            {
                hull.pop();
            }
            hull.push(point);
        }
        self.points = hull;
        self.reduced = self.points.len();
    }
}

/// The edge of a hull at the time `t`: its slope, and its value there.
pub(super) fn edge(corners: &[Point], t: f64) -> Option<(f64, f64)> {
    let [first, .., last] = corners else {
        return None;
    };
    let t = t.clamp(first.0, last.0);
    let at = corners.windows(2).find(|edge| edge[1].0 >= t)?;
    let slope = (at[1].1 - at[0].1) / (at[1].0 - at[0].0);
    Some((slope, at[0].1 + slope * (t - at[0].0)))
}
