//! Losses and their gradients.

/// A loss, the mean over what counts, and its gradient by the logits.
#[derive(Debug, Clone, PartialEq)]
pub struct Loss {
    pub value: f64,
    /// As many entries as the logits.
    pub gradient: Vec<f32>,
}

/// Cross-entropy of rows of `classes` logits against one label a row; rows without a label do not count. With no
/// label at all the loss is 0 and so is its gradient.
pub fn cross_entropy(logits: &[f32], classes: usize, labels: &[Option<usize>]) -> Loss {
    let count = labels.iter().flatten().count().max(1) as f64;
    let mut loss = Loss { value: 0.0, gradient: vec![0.0; logits.len()] };
    let rows = logits.chunks_exact(classes).zip(loss.gradient.chunks_exact_mut(classes)).zip(labels);
    for ((logits, gradient), label) in rows {
        let Some(label) = *label else { continue };
        let max = logits.iter().fold(f32::NEG_INFINITY, |max, logit| max.max(*logit)) as f64;
        let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - max).exp()).sum();
        loss.value += (max + sum.ln() - f64::from(logits[label])) / count;
        for (index, (logit, gradient)) in logits.iter().zip(gradient).enumerate() {
            let probability = (f64::from(*logit) - max).exp() / sum;
            *gradient = ((probability - f64::from(u8::from(index == label))) / count) as f32;
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
