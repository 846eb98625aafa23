//! Charts, and pictures made of them, before they are drawn.

use crate::units::Unit;

/// A plot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// Title above the chart.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Series in the order in which they are drawn.
    pub series: Vec<Series>,
    /// Lines of text below the chart.
    pub notes: Vec<String>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Label of the axis.
    pub label: String,
    /// Unit of the values.
    pub unit: Unit,
    /// True for a logarithmic axis.
    pub is_log: bool,
    /// Least range that the axis covers, for plots that are to be compared.
    pub range: Option<(f64, f64)>,
    /// Names of the values 0, 1, 2 …, each from half below it to half above; empty: the axis has numbers.
    pub names: Vec<String>,
}

impl Default for Axis {
    fn default() -> Self {
        Axis {
            label: String::new(),
            unit: Unit::Count,
            is_log: false,
            range: None,
            names: Vec::new(),
        }
    }
}

/// Values with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name of the series.
    pub name: String,
    /// The values.
    pub shape: Shape,
}

/// A rectangle: begin and end on x, begin and end on y.
pub type Rect = ((f64, f64), (f64, f64));

/// Values, by the way in which they are drawn. Points are in the order of x.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A line that rises at each point, as of a cumulative distribution.
    Steps(Vec<(f64, f64)>),
    /// A line from point to point; broken where a value is not finite.
    Line(Vec<(f64, f64)>),
    /// Filled boxes.
    Boxes(Vec<Rect>),
    /// Boxes as outlines with a pale inside, to be distinguished from filled ones.
    Outlines(Vec<Rect>),
    /// A point with the range around it: y, and least, middle and most of x.
    Ranges(Vec<(f64, [f64; 3])>),
}

impl Shape {
    /// The points of the shape that the axes must cover.
    pub fn points(&self) -> Vec<(f64, f64)> {
        match self {
            Shape::Steps(points) | Shape::Line(points) => points.clone(),
            Shape::Boxes(boxes) | Shape::Outlines(boxes) => boxes
                .iter()
                .flat_map(|&((a, b), (c, d))| [(a, c), (b, d)])
                .collect(),
            Shape::Ranges(ranges) => ranges
                .iter()
                .flat_map(|&(y, values)| values.map(|value| (value, y)))
                .collect(),
        }
    }
}

/// Plots in rows and columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// The plots, row by row.
    pub charts: Vec<Chart>,
    /// Number of charts beside each other.
    pub columns: usize,
}

impl From<Chart> for Picture {
    fn from(chart: Chart) -> Picture {
        Picture::from(vec![chart])
    }
}

impl From<Vec<Chart>> for Picture {
    /// One chart below the other.
    fn from(charts: Vec<Chart>) -> Picture {
        Picture { charts, columns: 1 }
    }
}
