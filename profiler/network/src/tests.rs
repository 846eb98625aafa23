//! Tests of several methods together, on reference captures and made-up programs.

mod captures;
mod costs;
mod survey;
