//! Makes inputs from a corpus: first the corpus itself, then randomly mutated entries. An input depends only on the
//! corpus, the seed and its index, so that any input of a run can be made again.

use std::ops::Range;

use crate::Target;
use crate::random::Random;

/// Maximum length of a normal input.
const LONGEST: usize = 4096;
/// Maximum length of an input that repeats a piece, to find work that grows faster than linearly.
const LONGEST_REPETITION: usize = 64 * 1024;
const REPETITION_ONCE_IN: usize = 400;
const MOST_CHANGES: usize = 6;

/// Bytes with a meaning in JSON, YAML, event streams and URI templates.
const TELLING_BYTES: &[u8] =
    b"\0\t\n\r \"#$&'*+,-./0123456789:;<=>?@[\\]_`ae{|}~\x7f\x80\xbf\xc3\xed\xef\xff";

pub fn input(target: &Target, corpus: &[Vec<u8>], seed: u64, index: u64) -> Vec<u8> {
    let entry = usize::try_from(index).ok().and_then(|index| corpus.get(index));
    if let Some(entry) = entry {
        return entry.clone();
    }
    let mut random = Random::for_input(seed, target.name, index);
    let mut input = random.pick(corpus).cloned().unwrap_or_default();
    for _ in 0..=random.below(MOST_CHANGES) {
        change(&mut input, &mut random, corpus, target.dictionary);
        input.truncate(LONGEST);
    }
    if random.once_in(REPETITION_ONCE_IN) {
        repeat(&mut input, &mut random);
    }
    input
}

fn change(input: &mut Vec<u8>, random: &mut Random, corpus: &[Vec<u8>], dictionary: &[&str]) {
    let at = random.below(input.len() + 1);
    match random.below(10) {
        0 => {
            let bit = 1 << random.below(8);
            input.get_mut(at).into_iter().for_each(|byte| *byte ^= bit);
        }
        1 => {
            let byte = any_byte(random);
            input.get_mut(at).into_iter().for_each(|place| *place = byte);
        }
        2 => input.insert(at, any_byte(random)),
        3 => drop(input.drain(piece(input, random, 16))),
        4 => drop(input.drain(piece(input, random, usize::MAX))),
        5 => {
            let copy = input[piece(input, random, 64)].to_vec();
            input.splice(at..at, copy);
        }
        6 | 7 => {
            let token = random.pick(dictionary).map_or(&b""[..], |token| token.as_bytes());
            input.splice(at..at, token.iter().copied());
        }
        8 => {
            let token = random.pick(dictionary).map_or(&b""[..], |token| token.as_bytes());
            input.splice(piece(input, random, 16), token.iter().copied());
        }
        _ => {
            let other = random.pick(corpus).map_or(&b""[..], Vec::as_slice);
            let tail = &other[random.below(other.len() + 1)..];
            input.splice(at.., tail.iter().copied());
        }
    }
}

/// Doubles a piece of the input until the input is long.
fn repeat(input: &mut Vec<u8>, random: &mut Random) {
    let range = piece(input, random, 64);
    if range.is_empty() {
        return;
    }
    let mut copies = input[range.clone()].to_vec();
    let length = LONGEST_REPETITION >> random.below(4);
    while copies.len() < length {
        copies.extend_from_within(..);
    }
    copies.truncate(length);
    input.splice(range.end..range.end, copies);
}

fn piece(input: &[u8], random: &mut Random, longest: usize) -> Range<usize> {
    let start = random.below(input.len() + 1);
    let length = random.below((input.len() - start).min(longest).saturating_add(1));
    start..start + length
}

fn any_byte(random: &mut Random) -> u8 {
    let any = random.next().to_le_bytes()[0];
    if random.once_in(3) { any } else { random.pick(TELLING_BYTES).copied().unwrap_or(any) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_can_be_made_again_from_its_index() {
        let target = crate::find("head").expect("a target");
        let corpus = vec![b"{\"id\":1}".to_vec(), b"[]".to_vec()];
        assert_eq!(input(target, &corpus, 7, 1), b"[]");
        let inputs = |seed| (2..2000).map(|index| input(target, &corpus, seed, index)).collect::<Vec<_>>();
        assert_eq!(inputs(7), inputs(7));
        assert_ne!(inputs(7), inputs(8));
        assert!(inputs(7).iter().all(|input| input.len() <= LONGEST + LONGEST_REPETITION));
        assert!(inputs(7).iter().any(|input| input.len() > LONGEST));
    }
}
