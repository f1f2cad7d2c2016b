/**
 * Signs that are not seen, and that turn the text around them round: a name with one of them can look like another name. Names, labels
 * and values come from everybody, and stand on every page; so they are made visible where all of them pass: in the document. What
 * is edited (fields, editors) stays as it is.
 */

const UNSEEN =
  // Of control signs, tabs and ends of lines are what they look like; U+3164 and its likes are letters without a form.
  String.raw`(?![\t\n\r])\p{Cc}|[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0]`;
/** Within emoji, after signs that are set upon others and between the letters of scripts that are joined, these two are part of what is read. */
const JOINERS = String.raw`(?<![\p{Extended_Pictographic}\p{Emoji_Modifier}\p{M}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Mongolian}])[\u200c\u200d]`;
/** Flags are written with these; elsewhere they hide a text. */
const TAGS = String.raw`(?<![\u{1f3f4}\u{e0020}-\u{e007f}])[\u{e0001}-\u{e007f}]`;
const HIDDEN = new RegExp(`${UNSEEN}|${JOINERS}|${TAGS}`, 'gu');
const IS_HIDDEN = new RegExp(HIDDEN.source, 'u');

/** A text in which such signs are seen, by their number: "⟨U+202E⟩live" instead of what reads "evil". */
export function visible(text: string): string {
  if (!IS_HIDDEN.test(text)) return text;
  return text.replace(HIDDEN, (sign) => {
    const code = (sign.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0');
    return `⟨U+${code}⟩`;
  });
}

/** Attributes that are read out, or shown beside the pointer. */
const READ_ATTRIBUTES = ['title', 'aria-label', 'aria-valuetext', 'alt'];
const WITH_ATTRIBUTES = READ_ATTRIBUTES.map((name) => `[${name}]`).join();

/** From now on no text of the document hides signs. What it gives ends that. */
export function showHiddenSigns(root: Document): () => void {
  const watch = new MutationObserver((changes) => {
    for (const { type, target, attributeName, addedNodes } of changes) {
      if (type === 'attributes') showInAttribute(target as Element, attributeName ?? '');
      else if (type === 'characterData') showInText(target as Text);
      else addedNodes.forEach(showWithin);
    }
  });
  showWithin(root.documentElement);
  watch.observe(root, {
    subtree: true,
    childList: true,
    characterData: true,
    attributes: true,
    attributeFilter: READ_ATTRIBUTES,
  });
  return () => watch.disconnect();
}

function showWithin(added: Node): void {
  if (added.nodeType === Node.TEXT_NODE) return showInText(added as Text);
  if (!(added instanceof Element)) return;
  for (const element of [added, ...added.querySelectorAll(WITH_ATTRIBUTES)])
    for (const name of READ_ATTRIBUTES) showInAttribute(element, name);
  // Most have none: one look at all of the text spares the walk.
  if (!IS_HIDDEN.test(added.textContent ?? '')) return;
  const texts = document.createTreeWalker(added, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) showInText(text as Text);
}

function showInText(text: Text): void {
  // What is typed into an editor is its own.
  if (text.parentElement?.isContentEditable || text.parentElement instanceof HTMLTextAreaElement) return;
  const shown = visible(text.data);
  if (shown !== text.data) text.data = shown;
}

function showInAttribute(element: Element, name: string): void {
  const value = element.getAttribute(name);
  if (value === null) return;
  const shown = visible(value);
  if (shown !== value) element.setAttribute(name, shown);
}
