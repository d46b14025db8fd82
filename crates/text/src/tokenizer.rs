//! The tokenizer: encoding, decoding, and what is known about its tokens.

use crate::added::{AddedTokens, Take};
use crate::decode::{DecodeStream, Decoder, Step};
use crate::encoding::{EncodeOptions, Encoding, Origin, Truncation, TruncationStrategy};
use crate::error::{Boxed, Error};
use crate::guard::{Guard, MARK};
use crate::model::Model;
use crate::normalize::Normalizer;
use crate::post::Post;
use crate::pretokenize::PreTokenizer;
use crate::template::Rendered;
use std::collections::BTreeSet;
use tokenizers::{OffsetType, PostProcessor as _, TruncationDirection, TruncationParams};

/// The parts that every source of a tokenizer is reduced to.
#[derive(Debug)]
pub(crate) struct Parts {
    pub model: Model,
    pub added: AddedTokens,
    pub normalizer: Normalizer,
    pub pre_tokenizer: PreTokenizer,
    pub post: Post,
    pub decoder: Decoder,
    pub roles: Roles,
    /// Where it came from and of what kind it is, for people.
    pub kind: String,
}

/// Ids with a meaning.
#[derive(Debug, Default, Clone)]
pub(crate) struct Roles {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub pad: Option<u32>,
    pub unk: Option<u32>,
    pub sep: Option<u32>,
    pub cls: Option<u32>,
    pub mask: Option<u32>,
    /// Every id that ends generation.
    pub ends: BTreeSet<u32>,
    /// What stands around a gap that is to be filled, where the file says it.
    pub infill: Option<[u32; 3]>,
    /// Said by the file; otherwise what the post-processor does.
    pub add_bos: Option<bool>,
}

/// Cuts text into the token ids of a model, and puts text together again.
///
/// ```text
/// text -> added tokens cut out -> normaliser -> pre-tokenizer -> model -> ids -> post-processor
/// ```
#[derive(Debug)]
pub struct Tokenizer {
    parts: Parts,
    adds_bos: bool,
}

impl Tokenizer {
    pub(crate) fn assemble(parts: Parts) -> Tokenizer {
        let mut tokenizer = Tokenizer { parts, adds_bos: false };
        let options = EncodeOptions { add_special: true, parse_special: false };
        let first = tokenizer.encode("", options).ok().and_then(|encoding| encoding.ids.first().copied());
        let roles = &tokenizer.parts.roles;
        tokenizer.adds_bos = roles.add_bos.unwrap_or(roles.bos.is_some() && first == roles.bos);
        tokenizer
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Encodes a text.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Encoding, Error> {
        let take = if options.parse_special { Take::All } else { Take::Plain };
        let encoded = self.sequence(text, 0, take)?;
        let encoded = self.post(encoded, None, options.add_special)?;
        Ok(self.finish(&encoded, &Origin::Text))
    }

    /// Encodes two texts that belong together, as the model expects pairs.
    pub fn encode_pair(&self, first: &str, second: &str, options: EncodeOptions) -> Result<Encoding, Error> {
        let take = if options.parse_special { Take::All } else { Take::Plain };
        let encoded = (self.sequence(first, 0, take)?, self.sequence(second, 1, take)?);
        let encoded = self.post(encoded.0, Some(encoded.1), options.add_special)?;
        Ok(self.finish(&encoded, &Origin::Text))
    }

    /// Encodes a text, or a pair, cut to a length. The first encoding is the text that is kept; the others are the
    /// parts cut off, each with the tokens that the model expects around a text.
    pub fn encode_truncated(
        &self,
        first: &str,
        second: Option<&str>,
        options: EncodeOptions,
        truncation: Truncation,
    ) -> Result<Vec<Encoding>, Error> {
        let take = if options.parse_special { Take::All } else { Take::Plain };
        let encoded = self.sequence(first, 0, take)?;
        let pair = second.map(|second| self.sequence(second, 1, take)).transpose()?;
        let added = if options.add_special { self.added_to(second.is_some()) } else { 0 };
        let room = truncation.max_length.saturating_sub(added);
        // The library asserts this of the text that is cut, after what the other takes.
        let lengths = (encoded.get_ids().len(), pair.as_ref().map_or(0, |pair| pair.get_ids().len()));
        let left = match (truncation.strategy, &pair) {
            (TruncationStrategy::LongestFirst, None) => room,
            // Both may be cut, the longer one down to half the room.
            (TruncationStrategy::LongestFirst, Some(_)) => room / 2,
            (TruncationStrategy::OnlyFirst, _) => room.saturating_sub(lengths.1),
            (TruncationStrategy::OnlySecond, _) => room.saturating_sub(lengths.0),
        };
        if room > 0 && lengths.0 + lengths.1 > room && truncation.stride >= left.max(1) {
            let problem = match left {
                0 => "the text that is not to be cut leaves no room for the other".into(),
                left => {
                    format!("parts that share {} tokens do not fit the room of {left} for a text", truncation.stride)
                }
            };
            return Err(Error::Encode { problem });
        }
        let params = TruncationParams {
            max_length: room,
            stride: truncation.stride,
            direction: if truncation.left { TruncationDirection::Left } else { TruncationDirection::Right },
            strategy: match truncation.strategy {
                TruncationStrategy::LongestFirst => tokenizers::TruncationStrategy::LongestFirst,
                TruncationStrategy::OnlyFirst => tokenizers::TruncationStrategy::OnlyFirst,
                TruncationStrategy::OnlySecond => tokenizers::TruncationStrategy::OnlySecond,
            },
        };
        let (encoded, pair) = tokenizers::truncate_encodings(encoded, pair, &params)?;
        let mut encoded = self.post(encoded, pair, options.add_special)?;
        let rest = encoded.take_overflowing();
        Ok(std::iter::once(&encoded).chain(&rest).map(|encoded| self.finish(encoded, &Origin::Text)).collect())
    }

    /// Encodes the prompt of a plain completion: as [`Tokenizer::encode`] with special tokens added, but with exactly
    /// one BOS when the text itself begins with one.
    pub fn encode_prompt(&self, text: &str, parse_special: bool) -> Result<Encoding, Error> {
        let mut encoding = self.encode(text, EncodeOptions { add_special: true, parse_special })?;
        if let Some(bos) = self.bos()
            && self.adds_bos
            && encoding.ids.starts_with(&[bos, bos])
        {
            encoding.remove_first();
        }
        Ok(encoding)
    }

    /// Encodes a rendered chat. Special tokens that the template printed are control tokens; those that were spelled
    /// in the messages are plain text (see [`Rendered`]). A BOS is added only if the model wants one and the template
    /// printed none; nothing is added at the end, where the answer goes.
    pub fn encode_chat(&self, rendered: &Rendered) -> Result<Encoding, Error> {
        let encoded = self.sequence(rendered.marked(), 0, Take::Unmarked)?;
        let mut encoding = self.finish(&encoded, &Origin::Template);
        rendered.correct_offsets(&mut encoding.offsets);
        if let Some(bos) = self.bos()
            && self.adds_bos
            && encoding.ids.first() != Some(&bos)
        {
            encoding.prepend(bos, self.token(bos).unwrap_or_default(), Origin::PostProcessor("bos".into()));
        }
        Ok(encoding)
    }

    fn sequence(&self, text: &str, type_id: u32, take: Take) -> Result<tokenizers::Encoding, Error> {
        let parts = &self.parts;
        let mut text = parts.added.extract(text, &parts.normalizer, take)?;
        if take == Take::Unmarked {
            text.normalize(|part| {
                if part.get().contains(MARK) {
                    part.filter(|c| c != MARK);
                }
                Ok(())
            })?;
        }
        parts.pre_tokenizer.pre_tokenize(&mut text)?;
        let guard = Guard { model: &parts.model, added: &parts.added };
        text.tokenize(|part| {
            let tokens = if take == Take::All { parts.model.tokenize(part.get()) } else { guard.tokenize(part.get()) };
            tokens.map_err(|error| Box::new(error) as Boxed)
        })?;
        Ok(text.into_encoding(None, type_id, OffsetType::Char)?)
    }

    fn post(
        &self,
        first: tokenizers::Encoding,
        second: Option<tokenizers::Encoding>,
        add_special: bool,
    ) -> Result<tokenizers::Encoding, Error> {
        match &self.parts.post.0 {
            Some(post) => Ok(post.process(first, second, add_special)?),
            None => Ok(<dyn tokenizers::PostProcessor>::default_process(
                std::iter::once(first).chain(second).collect(),
                add_special,
            )
            .map(|encodings| tokenizers::Encoding::merge(encodings, false))?),
        }
    }

    fn added_to(&self, pair: bool) -> usize {
        self.parts.post.0.as_ref().map_or(0, |post| post.added_tokens(pair))
    }

    fn finish(&self, encoded: &tokenizers::Encoding, origin: &Origin) -> Encoding {
        let special = encoded.get_ids().iter().zip(encoded.get_special_tokens_mask()).map(|(&id, &mask)| {
            if mask == 1 {
                Some(Origin::PostProcessor(self.role(id)))
            } else {
                self.is_special(id).then(|| origin.clone())
            }
        });
        let special: Vec<Option<Origin>> = special.collect();
        let added = |index: usize| matches!(special.get(index), Some(Some(Origin::PostProcessor(_))));
        // Without a post-processor a single text has no record of where its tokens come from.
        let texts = encoded.get_sequence_ids().into_iter().enumerate();
        let texts = texts.map(|(index, text)| text.or_else(|| (!added(index)).then_some(0))).collect();
        Encoding {
            ids: encoded.get_ids().to_vec(),
            pieces: encoded.get_tokens().to_vec(),
            offsets: encoded.get_offsets().to_vec(),
            type_ids: encoded.get_type_ids().to_vec(),
            words: encoded.get_word_ids().to_vec(),
            texts,
            special,
        }
    }

    fn role(&self, id: u32) -> String {
        let roles = &self.parts.roles;
        let named = [("bos", roles.bos), ("cls", roles.cls), ("eos", roles.eos), ("sep", roles.sep)];
        match named.iter().find(|(_, role)| *role == Some(id)) {
            Some((name, _)) => (*name).to_string(),
            None => self.token(id).unwrap_or_default(),
        }
    }

    /// The encoding of ids that no text was cut into: they stand for themselves.
    pub fn encoding_of(&self, ids: Vec<u32>) -> Encoding {
        Encoding {
            pieces: ids.iter().map(|&id| self.token(id).unwrap_or_default()).collect(),
            offsets: vec![(0, 0); ids.len()],
            type_ids: vec![0; ids.len()],
            special: ids.iter().map(|&id| self.is_special(id).then_some(Origin::Text)).collect(),
            words: vec![None; ids.len()],
            texts: vec![Some(0); ids.len()],
            ids,
        }
    }

    /// The text of the ids; unknown ids give nothing, and bytes that are no character give U+FFFD.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut stream = self.stream(skip_special);
        let mut text = String::new();
        for id in ids {
            stream.feed(*id, &mut text);
        }
        stream.flush(&mut text);
        text
    }

    /// The text of tokens that are given by their spelling, as [`Tokenizer::decode`] puts them together.
    pub fn join<'p>(&self, pieces: impl IntoIterator<Item = &'p str>) -> String {
        let mut stream = self.stream(false);
        let mut text = String::new();
        for piece in pieces {
            stream.feed_piece(piece, &mut text);
        }
        stream.flush(&mut text);
        text
    }

    /// Whether the model marks the pieces that continue a word (`##`).
    pub fn marks_continuations(&self) -> bool {
        self.parts.model.marks_continuations()
    }

    /// Decodes one id at a time.
    pub fn stream(&self, skip_special: bool) -> DecodeStream<'_> {
        DecodeStream::new(self, skip_special)
    }

    pub(crate) fn decoder(&self) -> &Decoder {
        &self.parts.decoder
    }

    /// A token as the decoder sees it.
    pub(crate) fn spelling(&self, id: u32) -> Option<&str> {
        self.parts.added.spelling(id).or_else(|| self.parts.model.vocabulary().token(id))
    }

    /// One more than the highest id.
    pub fn vocab_size(&self) -> usize {
        self.parts.model.vocabulary().len().max(self.parts.added.end())
    }

    /// The token of an id as the vocabulary spells it.
    pub fn token(&self, id: u32) -> Option<String> {
        self.parts.added.content(id).or_else(|| self.parts.model.vocabulary().token(id)).map(str::to_string)
    }

    /// The bytes that a token adds to a text in the middle of which it stands. `None` for ids that do not exist.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        if let Some(content) = self.parts.added.content(id) {
            return Some(content.as_bytes().to_vec());
        }
        let token = self.parts.model.vocabulary().token(id)?;
        Some(Step::middle(&self.parts.decoder.steps, token))
    }

    /// The id of a token, spelled as in the vocabulary.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.parts.added.id(token).or_else(|| self.parts.model.vocabulary().id(token))
    }

    /// Beginning of a sequence (`<s>`, `<|begin_of_text|>`, …).
    pub fn bos(&self) -> Option<u32> {
        self.parts.roles.bos
    }

    /// End of a sequence.
    pub fn eos(&self) -> Option<u32> {
        self.parts.roles.eos
    }

    pub fn pad(&self) -> Option<u32> {
        self.parts.roles.pad
    }

    pub fn unk(&self) -> Option<u32> {
        self.parts.roles.unk.or_else(|| self.parts.model.unk())
    }

    /// The separator of pairs.
    pub fn sep(&self) -> Option<u32> {
        self.parts.roles.sep
    }

    pub fn cls(&self) -> Option<u32> {
        self.parts.roles.cls
    }

    /// What a masked language model fills in.
    pub fn mask(&self) -> Option<u32> {
        self.parts.roles.mask
    }

    /// What stands around a gap, where the file says it: see [`crate::Infill`].
    pub(crate) fn infill_ids(&self) -> Option<[u32; 3]> {
        self.parts.roles.infill
    }

    /// Every id that ends generation: the end of the sequence, of the turn, of the message.
    pub fn end_ids(&self) -> Vec<u32> {
        self.parts.roles.ends.iter().copied().collect()
    }

    /// A control token: left out of decoded text when special tokens are skipped.
    pub fn is_special(&self, id: u32) -> bool {
        self.parts.added.is_special(id)
    }

    /// The special tokens, spelled.
    pub(crate) fn specials(&self) -> impl Iterator<Item = (&str, u32)> {
        self.parts.added.specials()
    }

    /// The tokens beside the vocabulary, spelled.
    pub(crate) fn added(&self) -> impl Iterator<Item = (&str, u32)> {
        self.parts.added.contents()
    }

    /// Whether every text gets a BOS in front.
    pub fn adds_bos(&self) -> bool {
        self.adds_bos
    }

    /// Where the tokenizer came from and its algorithm, for people.
    pub fn kind(&self) -> &str {
        &self.parts.kind
    }
}
