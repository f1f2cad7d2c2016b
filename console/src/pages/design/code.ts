import {
  type Completion as Option,
  type CompletionContext,
  type CompletionResult,
  autocompletion,
  closeBrackets,
  closeBracketsKeymap,
  completionKeymap,
} from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
import { javascript, javascriptLanguage } from '@codemirror/lang-javascript';
import { json } from '@codemirror/lang-json';
import { HighlightStyle, StreamLanguage, bracketMatching, indentUnit, syntaxHighlighting } from '@codemirror/language';
import { type Diagnostic, lintKeymap, setDiagnostics } from '@codemirror/lint';
import { search, searchKeymap } from '@codemirror/search';
import { Compartment, EditorState, type Extension, Transaction } from '@codemirror/state';
import { EditorView, drawSelection, keymap, lineNumbers, placeholder } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { type Completion, type Known, celCompletions } from '../../lib/design/complete';
import { messageParts } from '../../lib/design/cel';
import { m } from '../../paraglide/messages';

export type Language = 'json' | 'javascript' | 'cel' | 'message' | 'text';

/** Something that is wrong with a part of the text. */
export interface Mark {
  from: number;
  to: number;
  message: string;
}

export interface CodeOptions {
  language: Language;
  label: string;
  hint: string;
  hasLines: boolean;
  known: () => Known;
  changed: (text: string) => void;
  left: () => void;
}

/** Colours are those of the page: it hands its custom properties down into the shadow. */
const COLOURS = HighlightStyle.define([
  { tag: [tags.keyword, tags.bool, tags.null, tags.atom], color: 'var(--missing)' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--good)' },
  { tag: tags.number, color: 'var(--info)' },
  { tag: tags.comment, color: 'var(--ink-soft)', fontStyle: 'italic' },
  { tag: [tags.propertyName, tags.definition(tags.variableName)], color: 'var(--accent)' },
  { tag: [tags.operator, tags.punctuation], color: 'var(--ink-soft)' },
  { tag: tags.invalid, color: 'var(--critical)' },
]);

const THEME = EditorView.theme({
  '&': { color: 'var(--ink)', backgroundColor: 'transparent', height: '100%' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--mono)', fontSize: 'var(--text-small)', lineHeight: '1.55', overflow: 'auto' },
  '.cm-content': { padding: 'var(--space-2) 0', caretColor: 'var(--ink)' },
  '.cm-line': { padding: '0 var(--space-2)' },
  '.cm-cursor': { borderLeftColor: 'var(--ink)' },
  '.cm-placeholder': { color: 'var(--ink-soft)' },
  '.cm-gutters': { backgroundColor: 'transparent', color: 'var(--ink-soft)', border: 'none' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': {
    backgroundColor: 'color-mix(in srgb, var(--accent) 28%, transparent)',
  },
  '&.cm-focused .cm-matchingBracket': { backgroundColor: 'var(--accent-soft)' },
  // The marks that come with the package are pictures within the style, which the content security policy forbids.
  '.cm-lintRange': { backgroundImage: 'none', paddingBottom: '0' },
  '.cm-lintRange-error': {
    backgroundImage: 'none',
    textDecoration: 'underline wavy var(--critical) 1px',
    textUnderlineOffset: '3px',
  },
  '.cm-lintPoint::after': { borderBottomColor: 'var(--critical)' },
  '.cm-tooltip': {
    border: '1px solid var(--line)',
    borderRadius: 'var(--radius)',
    backgroundColor: 'var(--raised)',
    color: 'var(--ink)',
    boxShadow: 'var(--shadow)',
  },
  '.cm-tooltip.cm-tooltip-autocomplete > ul': {
    fontFamily: 'var(--mono)',
    fontSize: 'var(--text-small)',
    maxHeight: '14em',
  },
  '.cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]': {
    backgroundColor: 'var(--accent)',
    color: 'var(--on-accent)',
  },
  '.cm-panels': { backgroundColor: 'var(--surface)', color: 'var(--ink)' },
  '.cm-panels.cm-panels-top': { borderBottom: '1px solid var(--line)' },
  '.cm-panel.cm-search': { padding: 'var(--space-2)', paddingInlineEnd: 'var(--space-6)' },
  '.cm-panel.cm-search label': { fontSize: 'var(--text-small)' },
  '.cm-panel.cm-search [name=close]': { top: 'var(--space-2)', fontSize: 'var(--text-large)', cursor: 'pointer' },
  '.cm-textfield, .cm-button': {
    border: '1px solid var(--line-control)',
    borderRadius: 'var(--radius)',
    backgroundColor: 'var(--raised)',
    backgroundImage: 'none',
    color: 'var(--ink)',
    font: 'inherit',
  },
  '.cm-panel :focus-visible': { outline: '2px solid var(--accent)', outlineOffset: '1px' },
  '.cm-searchMatch': { backgroundColor: 'color-mix(in srgb, var(--warning) 30%, transparent)' },
  '.cm-searchMatch-selected': { backgroundColor: 'color-mix(in srgb, var(--warning) 60%, transparent)' },
  '.cm-completionMatchedText': { textDecoration: 'none', fontWeight: '700' },
  '.cm-diagnostic-error': { borderLeftColor: 'var(--critical)' },
});

const WORDS = /^(?:true|false|null|in)\b/;

/** Colours of an expression. */
function celToken(stream: { match(pattern: RegExp): unknown; next(): unknown }): string | null {
  if (stream.match(/^\s+/)) return null;
  if (stream.match(/^\/\/.*/)) return 'comment';
  if (stream.match(/^[rR]?(?:'''[^]*?'''|"""[^]*?"""|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")/)) return 'string';
  if (stream.match(/^(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)u?/)) return 'number';
  if (stream.match(WORDS)) return 'keyword';
  if (stream.match(/^(?:payload|settings|last|device|event)\b/)) return 'propertyName';
  if (stream.match(/^[A-Za-z_]\w*/)) return null;
  stream.next();
  return 'operator';
}

const cel = StreamLanguage.define({ name: 'cel', token: celToken });

const message = StreamLanguage.define<{ isInside: boolean }>({
  name: 'message',
  startState: () => ({ isInside: false }),
  token: (stream, state) => {
    if (!state.isInside && stream.match('{{')) {
      state.isInside = true;
      return 'keyword';
    }
    if (state.isInside && stream.match('}}')) {
      state.isInside = false;
      return 'keyword';
    }
    if (state.isInside) return celToken(stream);
    if (!stream.match(/^[^{]+/)) stream.next();
    return null;
  },
});

function celSource(options: CodeOptions) {
  return (context: CompletionContext): CompletionResult | null => {
    const text = context.state.doc.toString();
    let before = text.slice(0, context.pos);
    if (options.language === 'message') {
      const part = messageParts(text).find(
        ({ isExpression, from, to }) => isExpression && from <= context.pos && context.pos <= to,
      );
      if (!part) return null;
      before = text.slice(part.from, context.pos);
    }
    const found = celCompletions(before, options.known(), context.explicit);
    if (!found) return null;
    const offset = context.pos - before.length;
    return { from: offset + found.from, options: found.options.map(option), validFor: /^\w*$/ };
  };
}

function option({ label, apply, kind }: Completion): Option {
  // Names of this design and of its payloads come before functions.
  const boost = kind === 'function' ? 0 : 2;
  if (apply === undefined) return { label, type: kind, boost };
  // In place of the point, too.
  const write = (view: EditorView, _: Option, from: number, to: number): void =>
    view.dispatch({ changes: { from: from - 1, to, insert: apply }, selection: { anchor: from - 1 + apply.length } });
  return { label, type: kind, boost, apply: write };
}

const INPUT = ['bytes', 'fPort', 'recvTime', 'variables'].map((label) => ({ label, type: 'property' }));

function inputSource(context: CompletionContext): CompletionResult | null {
  const word = context.matchBefore(/\binput\.\w*$/);
  return word ? { from: word.from + 'input.'.length, options: INPUT, validFor: /^\w*$/ } : null;
}

function languageOf(options: CodeOptions): Extension {
  switch (options.language) {
    case 'json':
      return [json(), autocompletion({ override: [] })];
    case 'javascript':
      return [javascript(), javascriptLanguage.data.of({ autocomplete: inputSource }), autocompletion()];
    case 'cel':
      return [cel, autocompletion({ override: [celSource(options)] })];
    case 'message':
      return [message, autocompletion({ override: [celSource(options)] })];
    case 'text':
      return [];
  }
}

/** Searching in texts that are long enough for it, in the words of the page. */
function searching(): Extension {
  const phrases = {
    Find: m.code_find(),
    Replace: m.code_replace_by(),
    next: m.code_next(),
    previous: m.code_previous(),
    all: m.code_all(),
    'match case': m.code_match_case(),
    regexp: m.code_pattern(),
    'by word': m.code_words(),
    replace: m.code_replace(),
    'replace all': m.code_replace_all(),
    close: m.close(),
    'current match': m.code_match(),
    'on line': m.code_on_line(),
    'replaced match on line $': m.code_replaced_line({ line: '$' }),
    'replaced $ matches': m.code_replaced({ count: '$' }),
    'Go to line': m.code_go_to_line(),
    go: m.code_go(),
  };
  return [search({ top: true }), keymap.of(searchKeymap), EditorState.phrases.of(phrases)];
}

/**
 * An editor of code within a shadow root: there CodeMirror uses adopted style sheets, which the content security policy allows; in the
 * document it would write style elements.
 */
export class CodeView {
  readonly #view: EditorView;
  readonly #access = new Compartment();
  #isSetting = false;

  constructor(root: ShadowRoot, text: string, isReadOnly: boolean, options: CodeOptions) {
    const state = EditorState.create({
      doc: text,
      extensions: [
        history(),
        drawSelection(),
        bracketMatching(),
        closeBrackets(),
        indentUnit.of('  '),
        EditorState.tabSize.of(2),
        EditorView.lineWrapping,
        options.hasLines ? [lineNumbers(), searching()] : [],
        options.hint ? placeholder(options.hint) : [],
        languageOf(options),
        syntaxHighlighting(COLOURS),
        THEME,
        // Tab goes on to the next control, as everywhere.
        keymap.of([...closeBracketsKeymap, ...completionKeymap, ...lintKeymap, ...historyKeymap, ...defaultKeymap]),
        EditorView.contentAttributes.of({ 'aria-label': options.label, tabindex: '0' }),
        EditorView.updateListener.of((update) => {
          if (update.docChanged && !this.#isSetting) options.changed(update.state.doc.toString());
        }),
        EditorView.domEventHandlers({ blur: () => options.left(), beforeinput: replaceSelection }),
        this.#access.of(accessOf(isReadOnly)),
      ],
    });
    this.#view = new EditorView({ state, root, parent: root });
  }

  /** Shows another text. What was typed here is not its history. */
  set(text: string): void {
    const before = this.#view.state.doc.toString();
    if (before === text) return;
    this.#isSetting = true;
    const changes = { from: 0, to: before.length, insert: text };
    this.#view.dispatch({ changes, annotations: Transaction.addToHistory.of(false) });
    this.#isSetting = false;
  }

  setReadOnly(isReadOnly: boolean): void {
    this.#view.dispatch({ effects: this.#access.reconfigure(accessOf(isReadOnly)) });
  }

  mark(marks: readonly Mark[]): void {
    const { length } = this.#view.state.doc;
    const diagnostics = marks.map(({ from, to, message: text }): Diagnostic => ({
      from: Math.min(from, length),
      to: Math.min(Math.max(to, from), length),
      severity: 'error',
      message: text,
    }));
    this.#view.dispatch(setDiagnostics(this.#view.state, diagnostics));
  }

  /** Brings a place into view, with the cursor there. */
  show(at: number): void {
    const anchor = Math.min(at, this.#view.state.doc.length);
    this.#view.dispatch({ selection: { anchor }, effects: EditorView.scrollIntoView(anchor, { y: 'center' }) });
    this.#view.focus();
  }

  focus(): void {
    this.#view.focus();
  }

  destroy(): void {
    this.#view.destroy();
  }
}

/**
 * Replaces what is selected by what is typed. Left to the browser, it would keep the look of the replaced text in a style attribute,
 * which the content security policy forbids.
 */
function replaceSelection(event: InputEvent, view: EditorView): boolean {
  const { data } = event;
  const { from, to, empty } = view.state.selection.main;
  if (event.inputType !== 'insertText' || data === null || empty || view.composing || view.state.readOnly) return false;
  event.preventDefault();
  const insert = (): Transaction =>
    view.state.update(view.state.replaceSelection(data), { userEvent: 'input.type', scrollIntoView: true });
  // Brackets and quotes go around what is selected.
  const isTaken = view.state.facet(EditorView.inputHandler).some((handle) => handle(view, from, to, data, insert));
  if (!isTaken) view.dispatch(insert());
  return true;
}

function accessOf(isReadOnly: boolean): Extension {
  return [
    EditorState.readOnly.of(isReadOnly),
    EditorView.editable.of(!isReadOnly),
    isReadOnly ? EditorView.contentAttributes.of({ 'aria-readonly': 'true' }) : [],
  ];
}
