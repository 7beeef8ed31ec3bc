//! Smaller inputs that still fail: for parents that break a property, and for recorded passes.

/// Inputs that are smaller than another one, those with the largest part less first.
pub(crate) type Smaller<'a, T> = Box<dyn Iterator<Item = T> + 'a>;

/// Replaces an input by the first smaller one that still fails, and goes on from there until none fails or the tries are
/// used up. Returns the last input with its failure.
pub(crate) fn smallest<T, F, E>(
    failing: (T, F),
    tries_max: usize,
    smaller: impl Fn(&T) -> Smaller<'_, T>,
    mut failure_of: impl FnMut(&T) -> Result<Option<F>, E>,
) -> Result<(T, F), E> {
    let (mut smallest, mut failure) = failing;
    let mut tries = 0;
    loop {
        let mut next = None;
        for input in smaller(&smallest) {
            tries += 1;
            if tries > tries_max {
                break;
            }
            if let Some(failure) = failure_of(&input)? {
                next = Some((input, failure));
                break;
            }
        }
        match next {
            None => return Ok((smallest, failure)),
            Some(found) => (smallest, failure) = found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Removes items of a list as long as it contains the number 7; returns the result and the number of tries.
    fn seven(list: Vec<u32>, tries_max: usize) -> (Vec<u32>, usize) {
        let mut tries = 0;
        let found = smallest(
            (list, ()),
            tries_max,
            |list| {
                let without = move |at: usize| [&list[..at], &list[at + 1..]].concat();
                Box::new((0..list.len()).map(without))
            },
            |list| {
                tries += 1;
                Ok::<_, ()>(list.contains(&7).then_some(()))
            },
        );
        let (list, ()) = found.unwrap();
        (list, tries)
    }

    #[test]
    fn the_smallest_input_that_fails_is_found_within_the_tries() {
        assert_eq!(seven(vec![1, 2, 7, 3], 100), (vec![7], 5));
        assert_eq!(seven(vec![1, 2, 7, 3], 2), (vec![7, 3], 2));
        assert_eq!(seven(vec![7], 100), (vec![7], 1));
    }
}
