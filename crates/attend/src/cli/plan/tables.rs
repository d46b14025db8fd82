//! The page of `attend plan`.

use super::super::screen::{Table, binary, grouped, quantity, rate};
use super::Report;
use super::compare::Row;
use attend_nn::spec::{Body, ModelSpec};
use std::io::{Result, Write};

pub fn write(out: &mut impl Write, report: &Report, spec: &ModelSpec) -> Result<()> {
    let cached = !matches!(spec.body, Body::Encoder(_));
    write!(out, "{}", memory(report, cached))?;
    writeln!(out)?;
    write!(out, "{}", work(report, cached))?;
    let comparisons = &report.comparisons;
    if cached {
        side_by_side(out, "key and value heads", &comparisons.attention, Columns::Heads)?;
    }
    side_by_side(out, "weights", &comparisons.weights, Columns::Weights)?;
    side_by_side(out, "cache", &comparisons.cache, Columns::Cache)?;
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}

fn plural(count: usize, one: &str) -> String {
    format!("{} {one}{}", grouped(count as u64), if count == 1 { "" } else { "s" })
}

fn memory(report: &Report, cached: bool) -> Table {
    let plan = &report.plan;
    let mut table = Table::new(&["model", &format!("{} ({})", report.model, report.architecture)]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("parameters", format!("{} ({})", quantity(plan.parameters), grouped(plan.parameters)));
    row("weights", format!("{} in {}", binary(plan.weight_bytes), report.weights_type));
    if cached {
        let source = report.source.map_or(String::new(), |source| format!(" and {source} of source"));
        row(
            "cache",
            format!(
                "{} for {} of {} tokens{source} in {}: {} for each token{}",
                binary(plan.kv_cache_bytes),
                plural(report.requests, "request"),
                grouped(report.context as u64),
                report.kv_type,
                binary(plan.kv_bytes_per_token),
                if plan.cross_bytes_per_source_token > 0 {
                    format!(", {} for each of the source", binary(plan.cross_bytes_per_source_token))
                } else {
                    String::new()
                }
            ),
        );
        if plan.kv_held_bytes != plan.kv_cache_bytes {
            row("", format!("{} as it is held here, in whole blocks", binary(plan.kv_held_bytes)));
        }
    }
    let step = if cached { report.batch.min(report.context) } else { report.context.saturating_mul(report.requests) };
    row("activations", format!("{} to read {} at once", binary(plan.activation_bytes), plural(step, "token")));
    row("together", binary(plan.total_bytes));
    if let Some(fit) = &report.fit {
        let unit = if cached { "requests" } else { "texts" };
        row(
            "fits",
            match fit.fits {
                true => format!(
                    "in {}: up to {} tokens each, or {} {unit} of {}",
                    binary(fit.memory_bytes),
                    grouped(fit.largest_context),
                    grouped(fit.most_requests),
                    grouped(report.context as u64)
                ),
                false if fit.largest_context > 0 => {
                    format!("not in {}: {} tokens each would", binary(fit.memory_bytes), grouped(fit.largest_context))
                }
                false => format!("not in {}", binary(fit.memory_bytes)),
            },
        );
    }
    let stored = plan.attention_matrix_entries.saturating_mul(plan.attention_matrices).saturating_mul(4);
    row(
        "score matrices",
        format!(
            "{} entries for one head; all {} would take {} in f32 (none is stored)",
            grouped(plan.attention_matrix_entries),
            grouped(plan.attention_matrices),
            binary(stored)
        ),
    );
    table
}

fn work(report: &Report, cached: bool) -> Table {
    let plan = &report.plan;
    let mut table = Table::new(&["work"]);
    let flops = |value: f64| format!("{}FLOP", spaced(quantity(value as u64)));
    let whole = report.source.unwrap_or(report.context);
    table.row([
        "to read".to_owned(),
        format!(
            "{} for {} tokens, {} each, {:.1} for each byte of weights",
            flops(plan.prefill_flops),
            grouped(whole as u64),
            flops(plan.prefill_flops_per_token),
            plan.prefill_intensity
        ),
    ]);
    if cached {
        let share = 100.0 * plan.attention_flops_per_token / plan.flops_per_token.max(1.0);
        table.row([
            "to write".to_owned(),
            format!(
                "{} for token {} ({share:.0}% in attention), {:.2} for each of {} read in a step",
                flops(plan.flops_per_token),
                grouped(report.context as u64),
                plan.decode_intensity,
                binary(plan.decode_bytes_per_step)
            ),
        ]);
    }
    if let (Some(machine), Some(speed)) = (&report.machine, &report.speed) {
        let mut text = format!(
            "at best {} tokens/s read (bound by {})",
            rate(speed.prefill_tokens_per_second),
            speed.prefill_bound_by
        );
        if cached {
            text += &format!(
                ", {} tokens/s written (bound by {})",
                rate(speed.decode_tokens_per_second),
                speed.decode_bound_by
            );
        }
        table.row(["here".to_owned(), text]);
        table.row([
            String::new(),
            format!(
                "measured: {:.1} GB/s from memory, {:.0} GFLOP/s in products",
                machine.memory_bytes_per_second / 1e9,
                machine.flops_per_second / 1e9
            ),
        ]);
    }
    table
}

/// A quantity and a space before its unit's letter: `148 G` and `12 `.
fn spaced(quantity: String) -> String {
    if quantity.contains(' ') { quantity } else { format!("{quantity} ") }
}

#[derive(Clone, Copy)]
enum Columns {
    Heads,
    Weights,
    Cache,
}

fn side_by_side(out: &mut impl Write, title: &str, rows: &[Row], columns: Columns) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let speeds = rows.iter().any(|row| row.decode_tokens_per_second.is_some());
    let mut header = vec![title];
    header.extend(match columns {
        Columns::Heads => ["parameters", "cache per token", "cache"].as_slice(),
        Columns::Weights => ["bytes", "together"].as_slice(),
        Columns::Cache => ["per token", "bytes", "together"].as_slice(),
    });
    if speeds {
        header.push("tokens/s here");
    }
    let mut table = Table::new(&header);
    for row in rows {
        let mut cells = vec![row.name.clone()];
        cells.extend(match columns {
            Columns::Heads => {
                vec![quantity(row.parameters), binary(row.kv_bytes_per_token), binary(row.kv_cache_bytes)]
            }
            Columns::Weights => vec![binary(row.weight_bytes), binary(row.total_bytes)],
            Columns::Cache => vec![binary(row.kv_bytes_per_token), binary(row.kv_cache_bytes), binary(row.total_bytes)],
        });
        if speeds {
            cells.push(row.decode_tokens_per_second.map_or(String::new(), rate));
        }
        if row.own {
            cells.push("<- as planned".into());
        }
        table.row(cells);
    }
    write!(out, "{table}")
}
