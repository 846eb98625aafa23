//! Methods together, on reference captures and on programs made up.

mod captures;
mod costs;
mod survey;
