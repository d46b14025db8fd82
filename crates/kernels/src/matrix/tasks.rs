//! How a product is cut into tasks, and how tasks write to one result.

use crate::lanes::WIDTH;
use crate::pool;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

/// A buffer that tasks write disjoint parts of.
pub(crate) struct Output<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: parts are handed out under the promise of `part` that they do not overlap; `T` may go to another thread.
unsafe impl<T: Send> Sync for Output<'_, T> {}

impl<'a> Output<'a, f32> {
    /// A buffer that is not written yet; tasks may only [`Output::write`] to it.
    pub(crate) fn unwritten(buffer: &'a mut [MaybeUninit<f32>]) -> Output<'a, f32> {
        Output { start: buffer.as_mut_ptr().cast(), len: buffer.len(), borrow: PhantomData }
    }

    /// Writes the elements from `start` on.
    ///
    /// # Safety
    /// No part that lives, and no other write of the moment, may overlap.
    ///
    /// # Panics
    /// Outside the buffer.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, start: usize, values: &[f32]) {
        assert!(start <= self.len && values.len() <= self.len - start, "a part outside the buffer");
        // SAFETY: inside the buffer, which is borrowed for 'a; the caller keeps parts apart.
        unsafe {
            let start = self.start.add(start);
            match values.first_chunk::<WIDTH>() {
                // A whole vector is one move; the length of a call is not known.
                Some(values) => start.cast::<[f32; WIDTH]>().write_unaligned(*values),
                None => std::ptr::copy_nonoverlapping(values.as_ptr(), start, values.len()),
            }
        }
    }
}

impl<'a, T> Output<'a, T> {
    pub(crate) fn new(buffer: &'a mut [T]) -> Output<'a, T> {
        Output { start: buffer.as_mut_ptr(), len: buffer.len(), borrow: PhantomData }
    }

    /// The elements `start .. start + len`.
    ///
    /// # Safety
    /// No two parts that live at the same time may overlap.
    ///
    /// # Panics
    /// Outside the buffer.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start <= self.len && len <= self.len - start, "a part outside the buffer");
        // SAFETY: inside the buffer, which is borrowed for 'a; the caller keeps parts apart.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

/// A rectangle of a result: panels of sixteen outputs, rows of activations. `outputs` is the width of the result.
#[derive(Debug, Clone)]
pub(crate) struct Part<'a> {
    pub(crate) panels: Range<usize>,
    pub(crate) rows: Range<usize>,
    pub(crate) outputs: usize,
    /// `[outputs]`: what is added to the sums of every row.
    pub(crate) bias: Option<&'a [f32]>,
}

impl Part<'_> {
    /// Reads what [`Part::write`] writes.
    #[inline(always)]
    pub(crate) fn read(&self, out: &Output<'_, f32>, panel: usize, sums: &mut [[f32; WIDTH]]) {
        let first = panel * WIDTH;
        let width = WIDTH.min(self.outputs - first);
        for (row, sums) in self.rows.clone().zip(sums) {
            // SAFETY: the parts of a product are disjoint rectangles, each computed by one task.
            let out = unsafe { out.part(row * self.outputs + first, width) };
            match out.first_chunk::<WIDTH>() {
                Some(out) => *sums = *out,
                None => sums[..width].copy_from_slice(out),
            }
        }
    }

    /// Writes the sums of one panel, a vector for each row of the part.
    #[inline(always)]
    pub(crate) fn write(&self, out: &Output<'_, f32>, panel: usize, sums: &[[f32; WIDTH]]) {
        let first = panel * WIDTH;
        let width = WIDTH.min(self.outputs - first);
        let mut bias = [0.0; WIDTH];
        if let Some(all) = self.bias {
            bias[..width].copy_from_slice(&all[first..first + width]);
        }
        for (row, sums) in self.rows.clone().zip(sums) {
            let mut sums = *sums;
            // Without a bias nothing is added: a sum may be -0.
            if self.bias.is_some() {
                sums.iter_mut().zip(&bias).for_each(|(sum, bias)| *sum += bias);
            }
            // SAFETY: the parts of a product are disjoint rectangles, each computed by one task.
            unsafe { out.write(row * self.outputs + first, &sums[..width]) };
        }
    }
}

/// The size of a product, in the units that tasks are cut by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) outputs: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Rows that a task takes together.
    pub(crate) row_block: usize,
}

impl Work {
    /// Cuts the product into as many tasks as it is worth.
    pub(crate) fn cut(self) -> Cut {
        // About 10 us of work: below that a second thread costs more than it saves.
        const WORTH: usize = 1 << 17;
        let panels = self.outputs.div_ceil(WIDTH);
        let row_blocks = self.rows.div_ceil(self.row_block).max(1);
        let one = WIDTH * self.cols.max(1) * self.rows.min(self.row_block).max(1);
        let fair = (panels * row_blocks).div_ceil(8 * pool::threads());
        // Whole pairs of panels, which some kernels take together.
        let chunk = fair.max(WORTH.div_ceil(one)).next_multiple_of(2).clamp(1, panels.max(1));
        Cut { work: self, panels, row_blocks, chunk }
    }

    /// Runs `task` for parts that cover the result.
    pub(crate) fn run(self, task: impl Fn(Part<'static>) + Sync) {
        let cut = self.cut();
        pool::parallel(cut.tasks(), |index| task(cut.part(index)));
    }
}

/// A product cut into tasks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    work: Work,
    panels: usize,
    row_blocks: usize,
    /// Panels of a task.
    chunk: usize,
}

impl Cut {
    pub(crate) fn tasks(&self) -> usize {
        self.panels.div_ceil(self.chunk) * self.row_blocks
    }

    /// The part of one task. Tasks that read the same weights follow each other.
    pub(crate) fn part(&self, index: usize) -> Part<'static> {
        let Work { outputs, rows, row_block, .. } = self.work;
        let (first, block) = (index / self.row_blocks * self.chunk, index % self.row_blocks * row_block);
        Part {
            panels: first..(first + self.chunk).min(self.panels),
            rows: block..(block + row_block).min(rows),
            outputs,
            bias: None,
        }
    }
}
