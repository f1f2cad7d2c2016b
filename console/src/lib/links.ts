/** What the links in e-mails carry: `/?resetToken=…`, and `/?verified=1`, or 0 where the link held no more. */

let token = '';

/** Takes a link's secret out of the address, before anything else sees or keeps it, and leads to the page that the link is for. */
export function takeLinks(): void {
  const query = new URLSearchParams(location.search);
  const reset = query.get('resetToken');
  if (reset !== null) {
    token = reset;
    history.replaceState(null, '', '/reset');
  } else if (query.has('verified') && location.pathname === '/') {
    history.replaceState(null, '', query.get('verified') === '0' ? '/verified?used' : '/verified');
  }
}

/** The secret of a link to a new password; empty without one. */
export function resetToken(): string {
  return token;
}

/** An address of which every part can be read: a part with a broken percent sign is taken as it is typed. */
export function readable(pathname: string): string {
  return pathname
    .split('/')
    .map((part) => (isReadable(part) ? part : encodeURIComponent(part)))
    .join('/');
}

function isReadable(part: string): boolean {
  try {
    // The result is looked at, lest the call is taken out of the build as one without an effect.
    return decodeURIComponent(part).length <= part.length;
  } catch {
    return false;
  }
}
