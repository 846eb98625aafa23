//! What the programs are to record of each call that moves data.

use super::super::syscalls::{At, Data, Does, Length, Moves, Numbers, Obscures};
use super::layout::{
    CALL_ARGUMENTS, MESSAGE, MESSAGES, MINUS_ONE_IS_POSITION, MOVES_DATA, NO_ARGUMENT, NUMBERS,
    PLACE_IS_OFFSET, VECTOR, WRITES,
};

/// How each call moves data (`struct call_arguments` of tracer/bpf/events.h), by number: first those of this
/// architecture, then those of the other.
pub(super) fn calls() -> Vec<u8> {
    let mut all = vec![0; 2 * NUMBERS * CALL_ARGUMENTS];
    for (number, does) in Numbers::new().all() {
        let place = number * CALL_ARGUMENTS;
        all[place..][..CALL_ARGUMENTS].copy_from_slice(&arguments(does));
    }
    all
}

fn arguments(does: Does) -> [u8; CALL_ARGUMENTS] {
    let at = |argument: Option<usize>| argument.map_or(NO_ARGUMENT, |at| at as u8);
    let (how, [first, second, place, second_place, length, flags]) = match does {
        Does::Data(Data {
            writes,
            length,
            at: place,
            flags,
            socket: _,
        }) => {
            let (by_length, length) = of_length(length);
            let (by_place, place) = match place {
                At::Position => (0, None),
                At::Argument(at) => (PLACE_IS_OFFSET, Some(at)),
                At::ArgumentOrPosition(at) => (PLACE_IS_OFFSET | MINUS_ONE_IS_POSITION, Some(at)),
            };
            let writes = if writes { WRITES } else { 0 };
            (
                by_length | by_place | writes,
                [Some(0), None, place, None, length, flags],
            )
        }
        Does::Moves(Moves {
            from,
            from_offset,
            to,
            to_offset,
            length,
            ..
        }) => (
            0,
            [
                Some(from),
                Some(to),
                from_offset,
                to_offset,
                Some(length),
                None,
            ],
        ),
        Does::Obscures(Obscures { second, length }) => {
            let (by_length, length) = of_length(length);
            (by_length, [Some(0), second, None, None, length, None])
        }
    };
    let [first, second, place, second_place, length, flags] =
        [first, second, place, second_place, length, flags].map(at);
    [
        MOVES_DATA | how,
        first,
        second,
        place,
        second_place,
        length,
        flags,
        0,
    ]
}

/// The flag of a length, and the argument that has it.
fn of_length(length: Length) -> (u8, Option<usize>) {
    match length {
        Length::Argument(at) => (0, Some(at)),
        Length::Vector => (VECTOR, Some(1)),
        Length::Message => (MESSAGE, Some(1)),
        Length::Unknown => (MESSAGES, None),
    }
}
