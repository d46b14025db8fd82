//! Losses and their gradients.

/// A loss, the mean over what counts, and its gradient by the logits.
#[derive(Debug, Clone, PartialEq)]
pub struct Loss {
    pub value: f64,
    /// As many entries as the logits.
    pub gradient: Vec<f32>,
}

/// Where a part `epsilon` of each row's probability goes instead of to its label.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Smoothing {
    #[default]
    None,
    /// To all classes alike, the label among them (Szegedy et al. 2016).
    AllClasses(f64),
    /// To the other classes alike.
    OtherClasses(f64),
}

impl Smoothing {
    /// What the label and each of the other classes should have.
    fn targets(self, classes: usize) -> (f64, f64) {
        match self {
            Smoothing::None => (1.0, 0.0),
            Smoothing::AllClasses(epsilon) => {
                let share = epsilon / classes as f64;
                (1.0 - epsilon + share, share)
            }
            Smoothing::OtherClasses(epsilon) => (1.0 - epsilon, epsilon / (classes.max(2) - 1) as f64),
        }
    }
}

/// Cross-entropy of rows of `classes` logits against one label a row; rows without a label do not count. With no
/// label at all the loss is 0 and so is its gradient.
pub fn cross_entropy(logits: &[f32], classes: usize, labels: &[Option<usize>]) -> Loss {
    let count = labels.iter().flatten().count().max(1) as f64;
    cross_entropy_over(logits, classes, labels, Smoothing::None, count)
}

/// The sum of the rows' cross-entropies divided by `divisor`: 1 for the sum itself, the labels of several batches
/// together where their gradients add up.
pub fn cross_entropy_over(
    logits: &[f32],
    classes: usize,
    labels: &[Option<usize>],
    smoothing: Smoothing,
    divisor: f64,
) -> Loss {
    let (at_label, elsewhere) = smoothing.targets(classes);
    let mut loss = Loss { value: 0.0, gradient: vec![0.0; logits.len()] };
    let rows = logits.chunks_exact(classes).zip(loss.gradient.chunks_exact_mut(classes)).zip(labels);
    for ((logits, gradient), label) in rows {
        let Some(label) = *label else { continue };
        let max = logits.iter().fold(f32::NEG_INFINITY, |max, logit| max.max(*logit)) as f64;
        let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - max).exp()).sum();
        let total = max + sum.ln();
        loss.value += (at_label - elsewhere) * (total - f64::from(logits[label])) / divisor;
        if elsewhere != 0.0 {
            let all: f64 = logits.iter().map(|logit| total - f64::from(*logit)).sum();
            loss.value += elsewhere * all / divisor;
        }
        for (index, (logit, gradient)) in logits.iter().zip(gradient).enumerate() {
            let probability = (f64::from(*logit) - max).exp() / sum;
            let target = if index == label { at_label } else { elsewhere };
            *gradient = ((probability - target) / divisor) as f32;
        }
    }
    loss
}

/// The divergence of rows of logits from a teacher's, both softened by a temperature `T`, times `T^2`, the mean over
/// rows (Hinton et al. 2015).
pub fn distillation(logits: &[f32], teacher: &[f32], classes: usize, temperature: f64) -> Loss {
    let mut loss = Loss { value: 0.0, gradient: Vec::with_capacity(logits.len()) };
    let rows = (logits.len() / classes.max(1)).max(1) as f64;
    let log_probabilities = |row: &[f32]| {
        let scaled: Vec<f64> = row.iter().map(|logit| f64::from(*logit) / temperature).collect();
        let max = scaled.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total = max + scaled.iter().map(|value| (value - max).exp()).sum::<f64>().ln();
        scaled.into_iter().map(move |value| value - total)
    };
    for (student, teacher) in logits.chunks_exact(classes).zip(teacher.chunks_exact(classes)) {
        for (ours, theirs) in log_probabilities(student).zip(log_probabilities(teacher)) {
            let target = theirs.exp();
            // A class that the teacher rules out counts nothing, however unlikely it is here.
            let part = if target == 0.0 { 0.0 } else { target * (theirs - ours) };
            loss.value += part * temperature.powi(2) / rows;
            loss.gradient.push(((ours.exp() - target) * temperature / rows) as f32);
        }
    }
    loss
}

/// Mean squared error.
pub fn mean_squared_error(outputs: &[f32], targets: &[f32]) -> Loss {
    let count = outputs.len().max(1) as f64;
    let difference = || outputs.iter().zip(targets).map(|(output, target)| f64::from(*output) - f64::from(*target));
    Loss {
        value: difference().map(|d| d * d).sum::<f64>() / count,
        gradient: difference().map(|d| (2.0 * d / count) as f32).collect(),
    }
}

/// Binary cross-entropy with logits, for several labels at once.
pub fn binary_cross_entropy(logits: &[f32], targets: &[f32]) -> Loss {
    let count = logits.len().max(1) as f64;
    let pairs = || logits.iter().zip(targets).map(|(logit, target)| (f64::from(*logit), f64::from(*target)));
    let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
    Loss {
        value: pairs().map(|(logit, target)| softplus(logit) - logit * target).sum::<f64>() / count,
        gradient: pairs().map(|(logit, target)| ((1.0 / (1.0 + (-logit).exp()) - target) / count) as f32).collect(),
    }
}
