//! Buffers that the walk uses again.
//!
//! A step asks for the same few lengths in every layer. Taken from here they are neither asked of the system nor cleared
//! each time; a buffer that is not given back is freed like any other.

use std::cell::RefCell;

/// Buffers that wait, at most: what a layer holds at one time.
const MOST: usize = 8;

thread_local! {
    static WAITING: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// `len` numbers of any value, to be written over.
pub(crate) fn take(len: usize) -> Vec<f32> {
    let mut buffer = WAITING.with_borrow_mut(|waiting| {
        let fits = |buffer: &Vec<f32>| buffer.capacity() >= len && buffer.capacity() / 2 <= len.max(1 << 12);
        let best = (0..waiting.len()).filter(|&i| fits(&waiting[i])).min_by_key(|&i| waiting[i].capacity());
        best.map(|i| waiting.swap_remove(i)).unwrap_or_default()
    });
    buffer.resize(len, 0.0);
    buffer
}

/// A copy of `values` in such a buffer.
pub(crate) fn copy(values: &[f32]) -> Vec<f32> {
    let mut buffer = take(values.len());
    buffer.copy_from_slice(values);
    buffer
}

/// Gives a buffer back.
pub(crate) fn give(buffer: Vec<f32>) {
    WAITING.with_borrow_mut(|waiting| {
        if waiting.len() == MOST {
            waiting.remove(0);
        }
        waiting.push(buffer);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_taken_again() {
        let mut buffer = take(1 << 13);
        buffer.fill(7.0);
        let place = buffer.as_ptr();
        give(buffer);
        assert_eq!(take(1 << 16).len(), 1 << 16, "too long for what waits");
        let again = take((1 << 13) - 5);
        assert_eq!((again.as_ptr(), again.len()), (place, (1 << 13) - 5));
        assert_eq!(copy(&[1.0, 2.0]), [1.0, 2.0]);
    }
}
