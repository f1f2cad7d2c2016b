/** What the links in e-mails carry: `/?resetToken=…` and `/?verified=1`. */

let token = '';

/** Takes a link's secret out of the address, before anything else sees or keeps it, and leads to the page that the link is for. */
export function takeLinks(): void {
  const query = new URLSearchParams(location.search);
  const reset = query.get('resetToken');
  if (reset !== null) {
    token = reset;
    history.replaceState(null, '', '/reset');
  } else if (query.has('verified') && location.pathname === '/') {
    history.replaceState(null, '', '/verified');
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
    .map((part) => {
      try {
        decodeURIComponent(part);
        return part;
      } catch {
        return encodeURIComponent(part);
      }
    })
    .join('/');
}
