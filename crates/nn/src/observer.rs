//! Who may watch the walk: nobody, a recorder, or the tape that keeps what backward needs.
//!
//! Saving for backward and hooking for interpretation are one mechanism: the walk offers every named value at its
//! [`Site`], and an observer that declared an interest sees it, and may change it, before the walk goes on.

use crate::site::Site;
use std::collections::HashMap;

pub trait Observer {
    /// Whether anything is watched at all. The walk asks before it looks further, so that [`Nobody`] costs nothing.
    fn active(&self) -> bool {
        true
    }

    /// Whether the value at a site is wanted. A site inside a fused operation selects the unfused twin of that
    /// operation in that layer.
    fn wants(&self, site: Site) -> bool;

    /// The value at a wanted site, row-major with this shape; what is written here is what the walk goes on with.
    fn visit(&mut self, site: Site, value: &mut [f32], shape: &[usize]);

    /// The walk left the fused operation of this site for its textbook twin because the site is wanted.
    fn unfused(&mut self, _site: Site) {}
}

/// Offers a value to an observer.
#[inline(always)]
pub(crate) fn offer<O: Observer + ?Sized>(observer: &mut O, site: Site, value: &mut [f32], shape: &[usize]) {
    if observer.active() && observer.wants(site) {
        observer.visit(site, value, shape);
    }
}

/// Nobody watches: inference.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nobody;

impl Observer for Nobody {
    #[inline(always)]
    fn active(&self) -> bool {
        false
    }

    #[inline(always)]
    fn wants(&self, _site: Site) -> bool {
        false
    }

    #[inline(always)]
    fn visit(&mut self, _site: Site, _value: &mut [f32], _shape: &[usize]) {}
}

/// A value seen at a site.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub site: Site,
    pub shape: Vec<usize>,
    pub value: Vec<f32>,
}

/// Keeps a copy of every value at the sites it was asked for, in the order of the walk.
pub struct Recorder<F: Fn(Site) -> bool> {
    wanted: F,
    pub records: Vec<Record>,
    /// Sites for which a fused operation was left.
    pub unfused: Vec<Site>,
}

impl<F: Fn(Site) -> bool> Recorder<F> {
    pub fn new(wanted: F) -> Self {
        Recorder { wanted, records: Vec::new(), unfused: Vec::new() }
    }

    /// The first record of a site.
    pub fn get(&self, site: Site) -> Option<&Record> {
        self.records.iter().find(|record| record.site == site)
    }
}

impl<F: Fn(Site) -> bool> Observer for Recorder<F> {
    fn wants(&self, site: Site) -> bool {
        (self.wanted)(site)
    }

    fn visit(&mut self, site: Site, value: &mut [f32], shape: &[usize]) {
        self.records.push(Record { site, shape: shape.to_vec(), value: value.to_vec() });
    }

    fn unfused(&mut self, site: Site) {
        self.unfused.push(site);
    }
}

/// The tape: keeps what backward needs of one forward pass.
#[derive(Debug, Default)]
pub struct Tape {
    values: HashMap<Site, Vec<f32>>,
    gradients: HashMap<Site, Vec<f32>>,
}

impl Tape {
    pub fn new() -> Tape {
        Tape::default()
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.values.values().map(|value| value.len() * size_of::<f32>()).sum()
    }

    /// Adds a gradient that a loss has directly by the value at a site, beside the one by the model's output.
    pub(crate) fn add_gradient(&mut self, site: Site, gradient: Vec<f32>) {
        match self.gradients.get_mut(&site) {
            Some(sum) => sum.iter_mut().zip(gradient).for_each(|(sum, d)| *sum += d),
            None => {
                self.gradients.insert(site, gradient);
            }
        }
    }

    /// What [`Tape::add_gradient`] left at a site.
    pub(crate) fn gradient(&self, site: Site) -> Option<&[f32]> {
        self.gradients.get(&site).map(Vec::as_slice)
    }

    /// The value that the forward pass left at a site that feeds backward.
    pub(crate) fn get(&self, site: Site) -> &[f32] {
        match self.values.get(&site) {
            Some(value) => value,
            None => panic!("the tape holds nothing for {site}: backward was given the tape of another walk"),
        }
    }
}

impl Observer for Tape {
    fn wants(&self, site: Site) -> bool {
        site.feeds_backward()
    }

    fn visit(&mut self, site: Site, value: &mut [f32], _shape: &[usize]) {
        self.values.insert(site, value.to_vec());
    }
}
