//! Selection of the calls that the programs record, and of the parts of their records.

use super::super::syscalls::{self, Does, Length};
use super::layout::{DATA, ENTERS, MESSAGE, NUMBERS, OFFSET, OFFSETS, RETURNS, SHORT, VECTOR};

/// Flags for each number of a call, first of this architecture and then of the other; with `blocking` also of
/// calls that may block, which are all that is recorded of the other.
pub(super) fn numbers(blocking: bool) -> [u8; 2 * NUMBERS] {
    let mut wanted = [0; 2 * NUMBERS];
    let mut mark = |number: libc::c_long, bit: u8| {
        let place = usize::try_from(number)
            .ok()
            .and_then(|at| wanted.get_mut(at));
        if let Some(place) = place {
            *place |= bit;
        }
    };
    syscalls::entries(blocking).for_each(|number| mark(number, ENTERS));
    syscalls::returns(blocking).for_each(|number| mark(number, RETURNS));
    syscalls::of_three_arguments().for_each(|number| mark(number, SHORT));
    if blocking {
        for number in syscalls::foreign() {
            mark(NUMBERS as libc::c_long + number, ENTERS | RETURNS);
        }
    }
    for (number, does) in syscalls::all() {
        match does {
            Does::Data(data) => mark(
                number,
                DATA | match data.length {
                    Length::Vector => VECTOR,
                    Length::Message => MESSAGE,
                    Length::Argument(_) | Length::Unknown => 0,
                },
            ),
            Does::Moves(moves) => mark(
                number,
                DATA | match (moves.from_offset, moves.to_offset) {
                    (Some(1), Some(3)) => OFFSETS,
                    (Some(2), None) => OFFSET,
                    _ => 0,
                },
            ),
            _ => {}
        }
    }
    wanted
}
