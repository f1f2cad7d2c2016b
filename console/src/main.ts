import { mount } from 'svelte';
import './styles/tokens.css';
import './styles/base.css';
import { connection } from './api/connection.svelte';
import { session } from './api/session.svelte';
import { takeLinks } from './lib/links';
import { getLocale } from './paraglide/runtime';
import App from './App.svelte';

/** Once in so long, lest a file that stays away reloads the page for ever. */
const RELOADED_AFTER_MS = 60_000;

document.documentElement.lang = getLocale();
takeLinks();
void session.resume();

// A page that cannot be fetched is one of an older console, and the newer one has been installed meanwhile; or the server is away,
// and there is nothing to load until it is back.
addEventListener('unhandledrejection', (event) => {
  if (!/dynamically imported module/.test(String(event.reason))) return;
  event.preventDefault();
  void connection.look().then(reload);
});

function reload(): void {
  const last = Number(sessionStorage.getItem('reloaded') ?? 0);
  if (Date.now() - last < RELOADED_AFTER_MS) return;
  sessionStorage.setItem('reloaded', String(Date.now()));
  location.reload();
}

const target = document.getElementById('app');
if (target) mount(App, { target });
