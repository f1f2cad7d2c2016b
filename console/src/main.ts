import { mount } from 'svelte';
import './styles/tokens.css';
import './styles/base.css';
import { session } from './api/session.svelte';
import { takeLinks } from './lib/links';
import { getLocale } from './paraglide/runtime';
import App from './App.svelte';

/** Once in so long, lest a file that stays away reloads the page for ever. */
const RELOADED_AFTER_MS = 60_000;

document.documentElement.lang = getLocale();
takeLinks();
void session.resume();

// A page that is not there any more is one of an older console: the newer one has been installed meanwhile.
addEventListener('unhandledrejection', (event) => {
  if (!/dynamically imported module/.test(String(event.reason))) return;
  const last = Number(sessionStorage.getItem('reloaded') ?? 0);
  if (Date.now() - last < RELOADED_AFTER_MS) return;
  sessionStorage.setItem('reloaded', String(Date.now()));
  location.reload();
});

const target = document.getElementById('app');
if (target) mount(App, { target });
