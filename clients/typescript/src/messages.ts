/** A message of a stream of server-sent events. */
export interface Message {
  event: string;
  id: string;
  data: string;
}

/** Longest message, in characters: the server's are far shorter. */
const MESSAGE_CHARACTERS_MAX = 16 * 1024 * 1024;

/** Takes a stream of server-sent events apart, however its bytes are cut. */
export class MessageReader {
  #rest = '';
  #event = '';
  #id = '';
  #data: string[] = [];
  #characters = 0;

  /** Returns the messages that are whole with this piece of text. @throws RangeError for one that does not end */
  push(text: string): Message[] {
    this.#characters += text.length;
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    const messages: Message[] = [];
    for (const line of lines) {
      const message = this.#line(line.endsWith('\r') ? line.slice(0, -1) : line);
      if (message) messages.push(message);
      if (line === '' || line === '\r') this.#characters = this.#rest.length;
    }
    if (this.#characters > MESSAGE_CHARACTERS_MAX) throw new RangeError('a message of the stream is too long');
    return messages;
  }

  #line(line: string): Message | null {
    if (line === '') {
      const message = { event: this.#event || 'message', id: this.#id, data: this.#data.join('\n') };
      const isWhole = this.#data.length > 0;
      this.#event = '';
      this.#data = [];
      return isWhole ? message : null;
    }
    const colon = line.indexOf(':');
    if (colon === 0) return null;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'event') this.#event = value;
    else if (field === 'id') this.#id = value;
    else if (field === 'data') this.#data.push(value);
    return null;
  }
}
