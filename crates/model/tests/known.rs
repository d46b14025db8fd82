//! The well-known models against what was published of them.

use attend_kernels::{Compute, DType};
use attend_model::cost::{self, Planner, Uniform, Usage};
use attend_model::{Described, describe_known, known_models};
use attend_nn::KvTypes;

fn known(name: &str) -> Described {
    describe_known(name).unwrap_or_else(|error| panic!("{name}: {error}")).unwrap_or_else(|| panic!("no {name}"))
}

/// Parameters as counted in the published weights, or as the paper states them.
const PUBLISHED: [(&str, f64); 77] = [
    ("gpt2", 124_439_808.0),
    ("gpt2-medium", 354_823_168.0),
    ("gpt2-large", 774_030_080.0),
    ("gpt2-xl", 1_557_611_200.0),
    // Brown et al. 2020, table D.1.
    ("gpt3-175b", 174.6e9),
    // With the head for masked words, which BERT's published counts leave out.
    ("bert-base", 109_514_298.0),
    ("bert-large", 335_174_458.0),
    ("t5-small", 60_506_624.0),
    ("t5-base", 222_903_552.0),
    ("t5-large", 737_668_096.0),
    ("t5-3b", 2_851_598_336.0),
    ("t5-11b", 11_307_321_344.0),
    ("flan-t5-small", 76_961_152.0),
    ("flan-t5-base", 247_577_856.0),
    ("flan-t5-large", 783_150_080.0),
    ("flan-t5-xl", 2_849_757_184.0),
    ("flan-t5-xxl", 11_135_332_352.0),
    ("llama-1-7b", 6_738_415_616.0),
    ("llama-1-13b", 13_015_864_320.0),
    ("llama-1-30b", 32_528_943_616.0),
    ("llama-1-65b", 65_285_660_672.0),
    ("llama-2-7b", 6_738_415_616.0),
    ("llama-2-13b", 13_015_864_320.0),
    ("llama-2-70b", 68_976_648_192.0),
    ("llama-3-8b", 8_030_261_248.0),
    ("llama-3-70b", 70_553_706_496.0),
    ("llama-3.1-405b", 405_853_388_800.0),
    ("llama-3.2-1b", 1_235_814_400.0),
    ("llama-3.2-3b", 3_212_749_824.0),
    ("smollm2-135m", 134_515_008.0),
    ("smollm2-360m", 361_821_120.0),
    ("smollm2-1.7b", 1_711_376_384.0),
    ("mistral-7b", 7_241_732_096.0),
    ("bloom-560m", 559_214_592.0),
    ("bloom-1.1b", 1_065_314_304.0),
    ("bloom-7.1b", 7_069_016_064.0),
    ("bloom-176b", 176_247_271_424.0),
    ("mpt-7b", 6_649_286_656.0),
    // Chowdhery et al. 2022, table 1.
    ("palm-8b", 8.63e9),
    ("palm-62b", 62.50e9),
    ("palm-540b", 540.35e9),
    ("falcon-7b", 6_921_720_704.0),
    ("falcon-40b", 41_303_293_952.0),
    ("qwen2-0.5b", 494_032_768.0),
    ("qwen2-1.5b", 1_543_714_304.0),
    ("qwen2-7b", 7_615_616_512.0),
    ("qwen2-72b", 72_706_203_648.0),
    ("qwen2.5-3b", 3_085_938_688.0),
    ("qwen2.5-14b", 14_770_033_664.0),
    ("qwen2.5-32b", 32_763_876_352.0),
    ("qwen3-0.6b", 596_049_920.0),
    ("qwen3-4b", 4_022_468_096.0),
    ("qwen3-8b", 8_190_735_360.0),
    ("qwen3-32b", 32_762_123_264.0),
    ("gemma-2b", 2_506_172_416.0),
    ("gemma-7b", 8_537_680_896.0),
    ("gemma-2-2b", 2_614_341_888.0),
    ("gemma-2-9b", 9_241_705_984.0),
    ("gemma-2-27b", 27_227_128_320.0),
    ("gemma-3-1b", 999_885_952.0),
    ("gemma-3-27b", 27_009_002_240.0),
    ("phi-3-mini", 3_821_079_552.0),
    ("mixtral-8x7b", 46_702_792_704.0),
    ("mixtral-8x22b", 140_630_071_296.0),
    ("deepseek-v2-lite", 15_706_484_224.0),
    ("deepseek-v2", 235_741_434_880.0),
    ("deepseek-v3", 671_026_419_200.0),
    ("qwen3-30b-a3b", 30_532_122_624.0),
    ("qwen3-235b-a22b", 235_093_634_560.0),
    ("roberta-base", 124_697_433.0),
    ("roberta-large", 355_412_057.0),
    ("bart-base", 139_420_416.0),
    ("bart-large", 406_291_456.0),
    ("opt-125m", 125_239_296.0),
    ("opt-1.3b", 1_315_758_080.0),
    ("gpt-j-6b", 6_050_882_784.0),
    ("gpt-neox-20b", 20_554_567_680.0),
];

#[test]
fn parameters_are_the_published_ones() {
    let mut wrong = Vec::new();
    for (name, published) in PUBLISHED {
        let counted = known(name).parameters() as f64;
        if (counted / published - 1.0).abs() > 1e-3 {
            wrong.push(format!("{name}: {counted} instead of {published}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_known_model_can_be_described_and_planned() {
    let names = known_models();
    assert!(names.len() >= 80, "{}", names.len());
    for name in names {
        let described = known(name);
        let types = Uniform { dtype: DType::BF16, compute: Compute::Native };
        let usage = usage(128, DType::F16);
        let plan = Planner::new(&described.spec, &types).plan(&usage);
        let bytes = plan.parameters as f64 * 2.0;
        assert!(plan.active_parameters <= plan.parameters, "{name}");
        assert!((plan.weight_bytes as f64 / bytes - 1.0).abs() < 0.01, "{name}: {} and {bytes}", plan.weight_bytes);
        assert!(plan.flops_per_token > 0.0 && plan.activation_bytes > 0, "{name}");
    }
    assert!(describe_known("no-such-model").unwrap().is_none());
    assert_eq!(known("Llama-2-7B").parameters(), known("llama-2-7b").parameters());
}

fn usage(context: usize, kv: DType) -> Usage {
    Usage { context, source: context, requests: 1, batch: 512, kv: KvTypes::both(kv) }
}

#[test]
fn llama_2_70b_caches_an_eighth_of_its_heads() {
    let spec = known("llama-2-70b").spec;
    let types = Uniform { dtype: DType::BF16, compute: Compute::Native };
    const GIB: u64 = 1 << 30;
    let plan = |spec, context, kv| Planner::new(spec, &types).plan(&usage(context, kv));
    assert_eq!(plan(&spec, 4096, DType::F32).kv_cache_bytes, 5 * GIB / 2);
    assert_eq!(plan(&spec, 4096, DType::F16).kv_cache_bytes, 5 * GIB / 4);
    let all_heads = cost::with_kv_heads(&spec, 64).unwrap();
    assert_eq!(plan(&all_heads, 4096, DType::F16).kv_cache_bytes, 8 * 5 * GIB / 4);
    assert!(plan(&spec, 128 << 10, DType::F16).attention_matrix_entries > 16_000_000_000);
}

#[test]
fn windows_and_cross_attention_are_counted() {
    let types = Uniform { dtype: DType::BF16, compute: Compute::Native };
    let plan = |name: &str, context| Planner::new(&known(name).spec, &types).plan(&usage(context, DType::F16));
    let mistral = plan("mistral-7b", 32768);
    assert_eq!(mistral.kv_cache_bytes, 4096 * mistral.kv_bytes_per_token);
    // Of 26 layers every sixth sees everything.
    let gemma = plan("gemma-3-1b", 8192);
    let layer = gemma.kv_bytes_per_token / 26;
    assert_eq!(gemma.kv_cache_bytes, layer * (4 * 8192 + 22 * 512));
    let t5 = plan("t5-base", 100);
    assert_eq!(t5.kv_bytes_per_token, 12 * 2 * 768 * 2);
    assert_eq!(t5.cross_bytes_per_source_token, 12 * 2 * 768 * 2);
    assert_eq!(t5.kv_cache_bytes, 200 * 12 * 2 * 768 * 2);
    assert_eq!(plan("bert-base", 512).kv_cache_bytes, 0);
}

#[test]
fn work_is_two_operations_a_parameter_and_its_share_of_attention() {
    let types = Uniform { dtype: DType::BF16, compute: Compute::Native };
    let spec = known("llama-2-7b").spec;
    let plan = Planner::new(&spec, &types).plan(&usage(1024, DType::F16));
    // All but the token table, whose row is only copied, and the norms.
    let multiplied = 6_738_415_616.0 - 32000.0 * 4096.0 - 65.0 * 4096.0;
    let attention = 32.0 * 4.0 * 1024.0 * 4096.0;
    assert_eq!(plan.flops_per_token, 2.0 * multiplied + attention);
    assert_eq!(plan.attention_flops_per_token, attention);
    let head = 2.0 * 32000.0 * 4096.0;
    let pairs = 1024.0 * 1025.0 / 2.0;
    assert_eq!(plan.prefill_flops, 1024.0 * (2.0 * multiplied - head) + head + 32.0 * 4.0 * 4096.0 * pairs);
}

/// DeepSeek-V3 section 4.2: 671B parameters, of which 37B are activated for each token, and a cache of one latent.
#[test]
fn experts_and_latents_are_counted() {
    let types = Uniform { dtype: DType::BF16, compute: Compute::Native };
    let plan = |name: &str| Planner::new(&known(name).spec, &types).plan(&usage(4096, DType::BF16));
    let deepseek = plan("deepseek-v3");
    assert!((deepseek.active_parameters as f64 / 37e9 - 1.0).abs() < 0.03, "{}", deepseek.active_parameters);
    assert_eq!(deepseek.kv_bytes_per_token, 61 * (512 + 64) * 2);
    let mixtral = plan("mixtral-8x7b");
    assert!((mixtral.active_parameters as f64 / 12.9e9 - 1.0).abs() < 0.01, "{}", mixtral.active_parameters);
    let read = mixtral.decode_bytes_per_step - mixtral.kv_cache_bytes;
    assert!((read as f64 / (2.0 * mixtral.active_parameters as f64) - 1.0).abs() < 0.02, "{read}");
    assert!(mixtral.flops_per_token / (2.0 * mixtral.active_parameters as f64) < 1.2);
}

#[test]
fn what_fits_is_what_is_planned() {
    let types = Uniform { dtype: DType::Q4_K, compute: Compute::Native };
    let spec = known("llama-3.1-8b").spec;
    let planner = Planner::new(&spec, &types);
    let usage = usage(8192, DType::F16);
    let fit = planner.fit(&usage, 8_000_000_000);
    assert!(fit.fits && fit.most_requests >= 1 && fit.largest_context > 8192);
    let total = |usage: Usage| planner.plan(&usage).total_bytes;
    assert!(total(Usage { context: fit.largest_context as usize, ..usage }) <= 8_000_000_000);
    assert!(total(Usage { context: fit.largest_context as usize + 64, ..usage }) > 8_000_000_000);
    assert!(total(Usage { requests: fit.most_requests as usize + 1, ..usage }) > 8_000_000_000);
    let none = planner.fit(&usage, 1_000_000_000);
    assert!(!none.fits && none.largest_context == 0 && none.most_requests == 0);
}
