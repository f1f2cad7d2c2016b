import text from './wall.css?inline';

/** Brings the rules of the screen along with its page: adopted, as the content security policy wants. */
const sheet = new CSSStyleSheet();
sheet.replaceSync(text);
document.adoptedStyleSheets.push(sheet);
