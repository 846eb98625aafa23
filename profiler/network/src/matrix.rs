//! Traffic matrix: the bytes from each process to each other one (2.1, 2.4.5).

use std::sync::Arc;

use super::run::{Run, Unit, Unknown};

/// Traffic of one process to another, as the sender's capture saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Payload without retransmissions, bytes.
    pub payload_bytes: u64,
    /// Whole frames, bytes.
    pub wire_bytes: u64,
    /// Number of segments.
    pub packets: u64,
    /// Number of segments with payload that was on the wire before.
    pub repeated: u64,
    /// Payload of the repeated segments, bytes.
    pub repeated_bytes: u64,
}

/// A square matrix of values from row to column.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix<T> {
    size: usize,
    cells: Vec<T>,
}

impl<T: Clone + Default> Matrix<T> {
    /// A matrix of defaults.
    pub fn new(size: usize) -> Self {
        Matrix {
            size,
            cells: vec![T::default(); size * size],
        }
    }
}

impl<T> Matrix<T> {
    /// A matrix from its rows. All rows must have the same length as the list of rows.
    ///
    /// # Panics
    /// When the rows are not as long as there are rows.
    pub fn from_rows<const N: usize>(rows: [[T; N]; N]) -> Self {
        Matrix {
            size: N,
            cells: rows.into_iter().flatten().collect(),
        }
    }

    /// Number of rows.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The cell of sender `row` and receiver `column`.
    pub fn at(&self, row: usize, column: usize) -> &T {
        &self.cells[row * self.size + column]
    }

    /// The cell of sender `row` and receiver `column`, for changes.
    pub fn at_mut(&mut self, row: usize, column: usize) -> &mut T {
        &mut self.cells[row * self.size + column]
    }

    /// Row, column and cell of all cells off the diagonal.
    pub fn off_diagonal(&self) -> impl Iterator<Item = (usize, usize, &T)> {
        let cells = self.cells.iter().enumerate();
        cells
            .map(|(i, cell)| (i / self.size, i % self.size, cell))
            .filter(|(row, column, _)| row != column)
    }

    /// Another matrix of the same size.
    pub fn map<U>(&self, change: impl FnMut(&T) -> U) -> Matrix<U> {
        Matrix {
            size: self.size,
            cells: self.cells.iter().map(change).collect(),
        }
    }
}

/// The traffic of the interval. Each cell comes from the sender's own capture, or from the receiver's
/// if the sender has none.
///
/// # Errors
/// When the interval holds no packet.
pub fn traffic(run: &Run) -> Result<Arc<Matrix<Traffic>>, Unknown> {
    run.need_packets()?;
    Ok(run.once(|| Arc::new(counted(run))))
}

fn counted(run: &Run) -> Matrix<Traffic> {
    let mut matrix: Matrix<Traffic> = Matrix::new(run.nodes().len());
    run.each_seen(|me, packet| {
        let (src, dst) = (packet.src, packet.dst);
        let is_counted_here = if src == me {
            run.is_own(me) || !run.is_own(dst)
        } else {
            !run.is_own(src) && run.is_own(me)
        };
        if src != dst && is_counted_here {
            matrix
                .at_mut(usize::from(src), usize::from(dst))
                .add(packet);
        }
    });
    matrix
}

/// The traffic as the receivers saw it, for a check. `None` if the receiver has no capture.
pub fn received(run: &Run) -> Matrix<Option<Traffic>> {
    let mut matrix: Matrix<Option<Traffic>> = Matrix::new(run.nodes().len());
    for me in run.all().filter(|&me| run.is_own(me)) {
        for packet in run.stream(me).filter(|p| p.dst == me && p.src != me) {
            let cell = matrix.at_mut(usize::from(packet.src), usize::from(me));
            cell.get_or_insert_default().add(packet);
        }
    }
    matrix
}

impl Traffic {
    fn add(&mut self, packet: &super::run::Packet) {
        self.packets += 1;
        self.wire_bytes += u64::from(packet.wire);
        if packet.is_again {
            self.repeated += 1;
            self.repeated_bytes += u64::from(packet.payload);
        } else {
            self.payload_bytes += u64::from(packet.payload);
        }
    }

    /// Bytes in the given unit. Payload in the thesis's matrices includes retransmissions, which are
    /// never counted here.
    pub fn bytes(&self, unit: Unit) -> f64 {
        match unit {
            Unit::Payload => self.payload_bytes as f64,
            Unit::Frame => self.wire_bytes as f64,
        }
    }
}

/// Bytes of a matrix as numbers, for the topology.
pub fn bytes(matrix: &Matrix<Traffic>, unit: Unit) -> Matrix<f64> {
    matrix.map(|cell| cell.bytes(unit))
}
