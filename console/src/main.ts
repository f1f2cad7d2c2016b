import { mount } from 'svelte';
import './styles/tokens.css';
import './styles/base.css';
import { session } from './api/session.svelte';
import { takeLinks } from './lib/links';
import { getLocale } from './paraglide/runtime';
import App from './App.svelte';

document.documentElement.lang = getLocale();
takeLinks();
void session.resume();

const target = document.getElementById('app');
if (target) mount(App, { target });
