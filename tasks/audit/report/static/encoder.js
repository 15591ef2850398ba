// Encodes text as tokmill does, from the spec of a tokenizer. Strings of bytes are strings whose characters are
// at most U+00FF; each family takes a pre-token as such a string and returns ids. The laws and tie rules are
// those of the families' own modules.
"use strict";
(function (target) {
  class CannotEncode extends Error {}

  const utf8 = new TextEncoder(), fromUtf8 = new TextDecoder("utf-8");
  const toBinary = (text) => {
    const bytes = utf8.encode(text), parts = [];
    for (let i = 0; i < bytes.length; i += 8192) parts.push(String.fromCharCode(...bytes.subarray(i, i + 8192)));
    return parts.join("");
  };
  const fromBinary = (binary) => fromUtf8.decode(Uint8Array.from(binary, (c) => c.charCodeAt(0)));
  const characters = (binary) => binary.match(/[^][\x80-\xbf]*/g) ?? [];
  const MARK = toBinary("\u2581"), ENDS = "</w>", CONTINUES = "##";

  // GPT-2's alphabet: printable bytes are themselves, the others follow from U+0100 on.
  function alphabet() {
    const found = new Map();
    let next = 256;
    for (let byte = 0; byte < 256; byte++) {
      const printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      found.set(String.fromCharCode(printable ? byte : next++), String.fromCharCode(byte));
    }
    return found;
  }
  const ALPHABET = alphabet();
  const fromAlphabet = (text) => { let found = ""; for (const c of text) found += ALPHABET.get(c); return found; };

  const classOf = (ranges) => ranges.length
    ? `[${ranges.map(([a, b]) => a === b ? `\\u{${a.toString(16)}}` : `\\u{${a.toString(16)}}-\\u{${b.toString(16)}}`).join("")}]`
    : "[]";
  const compiled = ({source, classes}) =>
    new RegExp(source.replace(/<(\d+)>/g, (_, number) => classOf(classes[Number(number)])), "gu");

  // ---- normalizers: each step is a function of a text and of whether it begins the document

  function inRanges(ranges, point) {
    let low = 0, high = ranges.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (point < ranges[middle][0]) high = middle - 1;
      else if (point > ranges[middle][1]) low = middle + 1;
      else return ranges[middle];
    }
    return null;
  }

  function tableStep({ranges, around}) {
    return (text) => {
      let made = "";
      for (const c of text) {
        const found = inRanges(ranges, c.codePointAt(0));
        made += found ? found[2] : around && inRanges(around, c.codePointAt(0)) ? ` ${c} ` : c;
      }
      return made;
    };
  }

  function formStep({form, unassigned}) {
    return (text) => {
      for (const c of text)
        if (/\p{Cn}/u.test(c) || inRanges(unassigned, c.codePointAt(0)))
          throw new CannotEncode(`U+${c.codePointAt(0).toString(16).toUpperCase()} is not in Unicode's edition here or there, so its ${form} is not certain`);
      return text.normalize(form);
    };
  }

  function stripStep({left, right, white_space: spaces}) {
    return (text) => {
      let start = 0, end = text.length;
      while (left && start < end && spaces.includes(text[start])) start++;
      while (right && end > start && spaces.includes(text[end - 1])) end--;
      return text.slice(start, end);
    };
  }

  function marksStep({prepend, words, white_space: spaces}) {
    const mark = "\u2581", word = new RegExp(`[^${[...spaces].map((c) => `\\u{${c.codePointAt(0).toString(16)}}`).join("")}]+`, "gu");
    const marked = (text) => text.startsWith(mark) ? text : mark + text;
    if (words) return (text) => (text.match(word) ?? []).map(marked).join("");
    return (text, first) => {
      const made = text.replaceAll(" ", mark);
      return made && (prepend === "always" || (prepend === "first" && first)) ? marked(made) : made;
    };
  }

  // SentencePiece's rules: a double array, and the texts that it names; see kernels/sentences.py.
  function charsmap(encoded) {
    const bytes = Uint8Array.from(atob(encoded), (c) => c.charCodeAt(0));
    if (!bytes.length) return () => null;
    const view = new DataView(bytes.buffer), size = view.getUint32(0, true), count = size / 4;
    const unit = (i) => view.getUint32(4 + 4 * i, true), offset = (u) => (u >>> 10) << ((u & 0x200) >> 6);
    return (data, at) => {
      let after = at, value = -1, state = offset(unit(0));
      for (let i = at; i < data.length; i++) {
        const byte = data.charCodeAt(i);
        state = (state ^ byte) >>> 0;
        if (state >= count) break;
        const found = unit(state);
        if (((found & 0x800000ff) >>> 0) !== byte) break;
        state = (state ^ offset(found)) >>> 0;
        if ((found >>> 8) & 1 && state < count) { after = i + 1; value = unit(state) & 0x7fffffff; }
      }
      if (value < 0) return null;
      let last = value;
      while (4 + size + last < bytes.length && bytes[4 + size + last] !== 0) last++;
      return {text: String.fromCharCode(...bytes.subarray(4 + size + value, 4 + size + last)), after};
    };
  }

  function sentencesStep(spec) {
    const rule = charsmap(spec.charsmap), space = spec.escape_whitespaces ? MARK : " ";
    const kept = spec.kept.map(toBinary).sort((a, b) => b.length - a.length);
    const part = (data, at) => {
      const whole = kept.find((one) => data.startsWith(one, at));
      if (whole) return {text: whole, after: at + whole.length};
      const changed = rule(data, at);
      if (changed) return changed;
      let after = at + 1;
      while (after < data.length && (data.charCodeAt(after) & 0xc0) === 0x80) after++;
      return {text: data.slice(at, after), after};
    };
    const suffix = spec.treat_whitespace_as_suffix === true;
    return (text) => {
      const data = toBinary(text), extra = spec.remove_extra_whitespaces;
      let at = 0, made = "";
      while (extra && at < data.length) {
        const found = part(data, at);
        if (found.text !== " ") break;
        at = found.after;
      }
      if (at >= data.length) return "";
      if (spec.add_dummy_prefix && !suffix) made += space;
      let afterSpace = extra;
      while (at < data.length) {
        const found = part(data, at);
        const written = afterSpace ? found.text.replace(/^ +/, "") : found.text;
        made += written.replaceAll(" ", space);
        if (written) afterSpace = extra && written.endsWith(" ");
        at = found.after;
      }
      while (extra && made.endsWith(space)) made = made.slice(0, -space.length);
      return fromBinary(spec.add_dummy_prefix && suffix ? made + space : made);
    };
  }

  const STEPS = {
    table: tableStep, form: formStep, strip: stripStep, marks: marksStep, sentences: sentencesStep,
    replace: ({old, new: instead}) => (text) => text.replaceAll(old, () => instead),
    replace_pattern: (step) => { const found = compiled(step); return (text) => text.replace(found, () => step.new); },
    prepend: ({text: added}) => (text) => text ? added + text : text,
  };

  // ---- families: from the spec, a function from a pre-token to ids

  function longestOf(keys) { let longest = 0; for (const key of keys) longest = Math.max(longest, key.length); return longest; }

  // A heap of [rank, place, left, right], the least rank first, of equal ones the least place.
  const before = (a, b) => a[0] < b[0] || (a[0] === b[0] && a[1] < b[1]);

  function push(heap, entry) {
    let at = heap.length;
    for (let up; at > 0 && before(entry, heap[up = (at - 1) >> 1]); at = up) heap[at] = heap[up];
    heap[at] = entry;
  }

  function pop(heap) {
    const least = heap[0], last = heap.pop();
    if (!heap.length) return least;
    let at = 0;
    for (let down; (down = 2 * at + 1) < heap.length; at = down) {
      if (down + 1 < heap.length && before(heap[down + 1], heap[down])) down++;
      if (!before(heap[down], last)) break;
      heap[at] = heap[down];
    }
    heap[at] = last;
    return least;
  }

  // Join neighbours until no pair has a rank: the least rank first, of equal ones the leftmost. An entry of
  // the heap holds as long as its symbols stand where they stood.
  function joined(symbols, rankOf, join) {
    const left = symbols.slice(), size = left.length, heap = [];
    const next = Int32Array.from(left, (_, i) => i + 1), last = Int32Array.from(left, (_, i) => i - 1);
    const offer = (i) => {
      if (i < 0 || next[i] >= size) return;
      const rank = rankOf(left[i], left[next[i]]);
      if (rank !== undefined) push(heap, [rank, i, left[i], left[next[i]]]);
    };
    for (let i = 0; i < size; i++) offer(i);
    while (heap.length) {
      const [, i, first, second] = pop(heap), j = next[i];
      if (left[i] !== first || j >= size || left[j] !== second) continue;
      left[i] = join(first, second);
      left[j] = undefined;
      next[i] = next[j];
      if (next[j] < size) last[next[j]] = i;
      offer(last[i]);
      offer(i);
    }
    return left.filter((symbol) => symbol !== undefined);
  }

  function ranksOf(merges, tokens) {
    const size = tokens.length, ranks = new Map();
    merges.forEach(([left, right], rank) => ranks.set(left * size + right, rank));
    return {size, ranks};
  }

  function byteBpe(spec, {tokens, ids}) {
    const {size, ranks} = ranksOf(spec.merges, tokens);
    const rankOf = (left, right) => ranks.get(left * size + right);
    return (binary) => {
      const whole = ids.get(binary);
      if (spec.ignore_merges && whole !== undefined) return [whole];
      return joined([...binary].map((c) => ids.get(c)), rankOf, (a, b) => ids.get(tokens[a] + tokens[b]));
    };
  }

  // What becomes of strings that are no pieces: their bytes, or unknown tokens, neighbours as one if fused.
  function withUnknown(pieces, {ids, byteIds, unknown}, fuse) {
    const found = [];
    let before = false;
    for (const piece of pieces) {
      const id = piece === null ? undefined : ids.get(piece.text ?? piece);
      if (id !== undefined) found.push(id);
      else if (byteIds) for (const c of piece.text ?? piece) found.push(byteIds.get(c));
      else if (unknown !== undefined && !(before && fuse)) found.push(unknown);
      before = id === undefined;
    }
    return found;
  }

  function charBpe(spec, vocabulary) {
    const {tokens, ids} = vocabulary, fuse = spec.fuse_unknown !== false;
    if (spec.merges) {
      const ranks = new Map();
      spec.merges.forEach(([left, right], rank) => ranks.set(`${tokens[left]}\n${tokens[right]}\n${tokens[left].length}`, rank));
      const rankOf = (a, b) => ranks.get(`${a}\n${b}\n${a.length}`);
      return (binary) => withUnknown(joined(characters(binary), rankOf, (a, b) => a + b), vocabulary, fuse);
    }
    const frozen = new Set((spec.frozen ?? []).map((id) => tokens[id])), longest = longestOf(frozen);
    const rankOf = (a, b) => {
      if (a.fixed || b.fixed) return undefined;
      const text = a.text + b.text, id = ids.get(text);
      return id === undefined || frozen.has(text) ? undefined : -spec.scores[id];
    };
    const symbols = (binary) => {
      const found = [];
      for (let at = 0; at < binary.length;) {
        let fixed = null;
        for (let size = Math.min(longest, binary.length - at); size > 0 && fixed === null; size--)
          if (frozen.has(binary.slice(at, at + size))) fixed = binary.slice(at, at + size);
        const text = fixed ?? /[^][\x80-\xbf]*/y.exec(binary.slice(at))[0];
        found.push({text, fixed: fixed !== null});
        at += text.length;
      }
      return found;
    };
    const join = (a, b) => ({text: a.text + b.text, fixed: false});
    return (binary) => withUnknown(joined(symbols(binary), rankOf, join), vocabulary, fuse);
  }

  // The best way to each place; of equal ways the one whose last piece is longest.
  function unigram(spec, vocabulary) {
    const {ids, unknown, byteIds} = vocabulary, longest = longestOf(ids.keys());
    const rounded = spec.precision === "single" ? Math.fround : (score) => score;
    return (binary) => {
      const letters = characters(binary), starts = [0];
      for (const letter of letters) starts.push(starts.at(-1) + letter.length);
      const best = new Float64Array(letters.length + 1), back = new Int32Array(letters.length + 1), by = new Int32Array(letters.length + 1);
      const taken = [];  // where adding began at 0 again, and from which sum; see unigram/kernels/best_path.py
      for (let end = 1; end <= letters.length; end++) {
        let score = -Infinity, first = end;
        while (first > 0 && starts[end] - starts[first - 1] <= longest) first--;
        first = Math.min(first, end - 1);
        for (let start = first; start < end; start++) {
          const id = ids.get(binary.slice(starts[start], starts[end]));
          if (id === undefined && start !== end - 1) continue;
          let sum = rounded(best[start] + (id === undefined ? spec.unknown_score : spec.scores[id]));
          for (const [place, base] of taken) if (start < place) sum = rounded(sum - base);
          if (sum > score) { score = sum; back[end] = start; by[end] = id ?? -1; }
        }
        best[end] = score;
        if (spec.precision === "single" && score < -100000) { taken.push([end, score]); best[end] = 0; }
        if (taken.length && starts[end] - starts[taken[0][0]] > longest) taken.shift();
      }
      const path = [];
      for (let end = letters.length; end > 0; end = back[end]) path.push([by[end], letters[end - 1]]);
      const found = [];
      let before = false;
      for (const [id, letter] of path.reverse()) {
        if (id >= 0) found.push(id);
        else if (byteIds) for (const c of letter) found.push(byteIds.get(c));
        else if (!before) found.push(unknown);
        before = id < 0;
      }
      return found;
    };
  }

  // White_Space, in UTF-8: words are what is between.
  const SPACE = /[\t-\r ]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80/;
  const wordsOf = (binary) => binary.split(SPACE).filter((word) => word);
  const ofWords = (encode) => (binary) => wordsOf(binary).flatMap(encode);

  function wordPiece(spec, {ids, unknown}) {
    const continuing = (token) => token.startsWith(CONTINUES) && token.length > CONTINUES.length;
    const longest = longestOf(ids.keys());
    const fitting = (word, at) => {
      const prefixes = at === 0 ? [""] : spec.unknown === "part" ? [CONTINUES, ""] : [CONTINUES];
      for (const prefix of prefixes)
        for (let end = Math.min(word.length, at + longest); end > at; end--) {
          const text = word.slice(at, end), id = ids.get(prefix + text);
          if (id !== undefined && (prefix || !continuing(text))) return {id, end};
        }
      return null;
    };
    return ofWords((word) => {
      if (characters(word).length > spec.max_input_chars_per_word) return [unknown];
      const found = [];
      for (let at = 0; at < word.length;) {
        const piece = fitting(word, at);
        if (piece) { found.push(piece.id); at = piece.end; continue; }
        if (spec.unknown === "word") return [unknown];
        if (found.at(-1) !== unknown) found.push(unknown);
        at += characters(word.slice(at))[0].length;
      }
      return found;
    });
  }

  function wordBpe(spec, vocabulary) {
    const {tokens, ids} = vocabulary, ranks = new Map(), apart = spec.end_of_word === "apart";
    spec.merges.forEach(([left, right], rank) => ranks.set(`${tokens[left]} ${tokens[right]}`, rank));
    const rankOf = (a, b) => ranks.get(`${a} ${b}`); // words have no spaces
    const symbols = (word) => {
      const letters = spec.letters === "bytes" ? [...word] : characters(word);
      if (apart) letters.push(ENDS); else letters.push(letters.pop() + ENDS);
      return letters;
    };
    const isPiece = (letters) => {
      const text = letters.join("");
      return ids.has(text) && text.endsWith(ENDS) === letters.at(-1).endsWith(ENDS);
    };
    // The longest piece, the leftmost of equal ones, then the longest in what is left: one pass for each length.
    const longest = longestOf(ids.keys());
    const longestFirst = (letters) => {
      const found = new Array(letters.length).fill(null), taken = new Uint8Array(letters.length);
      for (let size = Math.min(longest, letters.length); size > 0; size--)
        for (let i = 0; i + size <= letters.length; i++) {
          const window = letters.slice(i, i + size);
          if (taken.subarray(i, i + size).includes(1) || !isPiece(window)) continue;
          found[i] = window.join("");
          taken.fill(1, i, i + size);
          i += size - 1;
        }
      letters.forEach((letter, i) => { if (!taken[i]) found[i] = letter; });
      return found.filter((piece) => piece !== null);
    };
    const cut = spec.segmentation === "longest_first" ? longestFirst : (letters) => joined(letters, rankOf, (a, b) => a + b);
    return ofWords((word) => withUnknown(cut(symbols(word)), {...vocabulary, byteIds: null}, spec.fuse_unknown));
  }

  function longestMatch(spec, {ids}) {
    const longest = longestOf(ids.keys());
    return (binary) => {
      const found = [];
      for (let at = 0; at < binary.length;) {
        let size = Math.min(longest, binary.length - at);
        while (!ids.has(binary.slice(at, at + size))) size--;
        found.push(ids.get(binary.slice(at, at + size)));
        at += size;
      }
      return found;
    };
  }

  const FAMILIES = {
    byte_bpe: byteBpe, char_bpe: charBpe, word_bpe: wordBpe, wordpiece: wordPiece, unigram, longest_match: longestMatch,
    word_level: (spec, {ids, unknown}) => (binary) => [ids.get(binary) ?? unknown],
    character_level: (spec, {ids, unknown}) => (binary) => characters(binary).map((c) => ids.get(c) ?? unknown),
  };

  function vocabularyOf(spec) {
    const tokens = spec.tokens.map((token) => token === null ? null : fromAlphabet(token));
    const standing = new Set(spec.byte_ids ?? []), ids = new Map();
    tokens.forEach((token, id) => { if (token !== null && !standing.has(id)) ids.set(token, id); });
    const byteIds = standing.size ? new Map([...standing].map((id) => [tokens[id], id])) : null;
    return {tokens, ids, byteIds, unknown: spec.special_tokens[spec.unknown_token]};
  }

  // ---- the whole

  function pieces(text, expression) {
    const found = [];
    let at = 0;
    for (const match of text.matchAll(expression)) {
      if (!match[0]) throw new CannotEncode("the split pattern matches the empty text");
      if (match.index > at) found.push(text.slice(at, match.index));
      found.push(match[0]);
      at = match.index + match[0].length;
    }
    if (at < text.length) found.push(text.slice(at));
    return found;
  }

  // Return a function from a text to its ids. With `special`, names of special tokens in the text become their ids.
  function makeEncoder(spec) {
    if (spec.refused) throw new CannotEncode(spec.refused);
    const encode = FAMILIES[spec.family](spec, vocabularyOf(spec));
    const steps = spec.steps.map((step) => STEPS[step.kind](step)), chain = spec.split.map(compiled);
    const names = Object.keys(spec.special_tokens).sort((a, b) => b.length - a.length);
    const special = names.length ? new RegExp(names.map((name) => name.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&")).join("|"), "gu") : null;
    const ofText = (text, first) => {
      for (const step of steps) text = step(text, first);
      let parts = text ? [text] : [];
      for (const expression of chain) parts = parts.flatMap((part) => pieces(part, expression));
      return parts.flatMap((part) => encode(toBinary(part)));
    };
    return (given, options = {}) => {
      const text = given.replace(/\p{Cs}/gu, "\ufffd");
      if (!options.special || !special) return ofText(text, true);
      const found = [];
      let at = 0;
      for (const match of text.matchAll(special)) {
        if (match.index > at) found.push(...ofText(text.slice(at, match.index), at === 0));
        found.push(spec.special_tokens[match[0]]);
        at = match.index + match[0].length;
      }
      return at < text.length ? [...found, ...ofText(text.slice(at), at === 0)] : found;
    };
  }

  // Return a token as one line: its text, or its bytes where it is no text alone.
  function tokenText(spec, id) {
    const token = spec.tokens[id];
    if (token === null || token === undefined) return Object.keys(spec.special_tokens).find((name) => spec.special_tokens[name] === id) ?? "";
    const bytes = Uint8Array.from(fromAlphabet(token), (c) => c.charCodeAt(0));
    try {
      const names = {"\n": "\\n", "\r": "\\r", "\t": "\\t"};
      return new TextDecoder("utf-8", {fatal: true, ignoreBOM: true}).decode(bytes)
        .replace(/\p{Cc}/gu, (c) => names[c] ?? `\\x${c.charCodeAt(0).toString(16).padStart(2, "0")}`);
    } catch {
      return Array.from(bytes, (byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");
    }
  }

  Object.assign(target, {makeEncoder, tokenText, CannotEncode});
})(typeof module === "object" ? module.exports : window);
