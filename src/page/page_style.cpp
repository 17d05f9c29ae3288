// The style sheet of a page: one column to read, figures beside each other where there is room,
// dark where the reader's screen is, and print. Colours of marks are in figure.cpp.
#include "report/html.h"

namespace tessera::report {

const char* page_style() {
  return R"(
:root{--page:#fff;--text:#1c1f23;--soft:#5b636d;--line:#dfe3e8;--panel:#f6f7f9;--link:#005a9c;--good:#00664b;--goodbg:#e3f4ee;--bad:#a03d00;--badbg:#fdeee3;--note:#f4f6fb}
@media screen and (prefers-color-scheme:dark){:root{--page:#14161a;--text:#e8eaed;--soft:#a5adb8;--line:#343941;--panel:#1c1f25;--link:#7cc0f5;--good:#6fd6b2;--goodbg:#12332a;--bad:#ffb27d;--badbg:#3b2213;--note:#1b2130}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--text);font:16px/1.55 system-ui,-apple-system,'Segoe UI','Helvetica Neue',Arial,sans-serif;text-rendering:optimizeLegibility}
nav{position:sticky;top:0;z-index:1;background:var(--page);border-bottom:1px solid var(--line);display:flex;align-items:baseline;gap:1.25rem;padding:.55rem max(1rem,calc((100vw - 1160px)/2));overflow-x:auto;white-space:nowrap;font-size:.875rem}
nav .brand{margin:0;font-weight:700;letter-spacing:.02em}
nav ul{display:flex;gap:1rem;list-style:none;margin:0;padding:0}
nav a{color:var(--soft);text-decoration:none}nav a:hover{color:var(--link);text-decoration:underline}
main{max-width:1160px;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:2rem;line-height:1.2;letter-spacing:-.015em;margin:.75rem 0 .35rem;overflow-wrap:anywhere}
h2{font-size:1.4rem;line-height:1.25;letter-spacing:-.01em;margin:3rem 0 .4rem;padding-top:1.1rem;border-top:1px solid var(--line);overflow-wrap:anywhere;scroll-margin-top:3rem}
h3{font-size:1.05rem;margin:1.8rem 0 .4rem}
p,li{max-width:60rem;overflow-wrap:anywhere}
.lead{font-size:1.1rem;color:var(--soft);margin:.2rem 0 .8rem}
.soft{color:var(--soft)}.small{font-size:.875rem}
a{color:var(--link)}
.facts{display:flex;flex-wrap:wrap;gap:.5rem 2.25rem;margin:1.1rem 0;padding:0}
.facts div{min-width:5.5rem}.facts dt{font-size:.75rem;letter-spacing:.04em;text-transform:uppercase;color:var(--soft)}.facts dd{margin:0;font-weight:600;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.verdict{background:var(--panel);border-radius:10px;padding:1rem 1.35rem;margin:1.1rem 0}
.verdict p{margin:.45rem 0;max-width:66rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,15rem),1fr));gap:.8rem;list-style:none;margin:.2rem 0;padding:0}
.tiles li{display:flex;flex-direction:column;gap:.15rem;background:var(--page);border:1px solid var(--line);border-radius:8px;padding:.7rem .9rem;min-width:0}
.tiles .label{font-size:.75rem;letter-spacing:.04em;text-transform:uppercase;color:var(--soft)}.tiles strong{font-size:1.75rem;line-height:1.15;font-variant-numeric:tabular-nums}.tiles .what{font-size:.85rem;line-height:1.4;color:var(--soft);overflow-wrap:anywhere}
.samples{display:grid;grid-template-columns:repeat(auto-fill,minmax(7.5rem,1fr));gap:.8rem;list-style:none;padding:0;margin:1rem 0}
.samples li{border:1px solid var(--line);border-radius:8px;padding:.5rem;font-size:.8rem;line-height:1.35;min-width:0;overflow-wrap:anywhere;border-top:4px solid var(--good)}.samples li.miss{border-top-color:#d55e00}.samples img{display:block;width:100%;image-rendering:pixelated;border-radius:4px;margin-bottom:.35rem}.samples span{display:block}
.running{background:var(--note);border-left:4px solid #0072b2;padding:.6rem 1rem;border-radius:0 8px 8px 0;max-width:none}
.warn{background:var(--badbg);border-left:4px solid #d55e00;padding:.6rem 1rem;border-radius:0 8px 8px 0;max-width:none}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,500px),1fr));gap:1.25rem;margin:1.2rem 0;align-items:stretch}
figure{margin:0;display:flex;flex-direction:column;border:1px solid var(--line);border-radius:10px;padding:.7rem .7rem .35rem;min-width:0;break-inside:avoid}
figure svg{display:block;width:100%;height:auto}
figure.wide{margin:1.2rem 0}.scroll{overflow-x:auto}
figure.wide svg{min-width:720px}
figcaption{margin-top:auto;font-size:.82rem;line-height:1.45;color:var(--soft);padding:.35rem .35rem .4rem}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums;margin:.8rem 0;min-width:min(100%,34rem)}
.below{font-size:.82rem;color:var(--soft);margin:-.3rem 0 1rem}
th,td{padding:.34rem .8rem .34rem 0;border-bottom:1px solid var(--line);text-align:right;vertical-align:top}
th{color:var(--soft);font-weight:600;vertical-align:bottom}
thead th{border-bottom:2px solid var(--line)}
th.text,td.text{text-align:left;overflow-wrap:anywhere;min-width:6rem;max-width:26rem}
td.text:first-child{overflow-wrap:break-word}
td:not(.text) .value{white-space:nowrap}
td .range{display:block;font-size:.78rem;color:var(--soft);white-space:nowrap}
td.best{background:var(--goodbg)}td.best .value::after{content:" ★";color:var(--good)}
td.bad{color:var(--bad);font-weight:600}td.good{color:var(--good);font-weight:600}
code,pre{font:0.82rem/1.5 ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace}
code{overflow-wrap:anywhere}
pre{background:var(--panel);border-radius:8px;padding:.7rem .9rem;overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere}
details{margin:.8rem 0}summary{cursor:pointer;color:var(--link)}
footer{margin-top:3rem;border-top:1px solid var(--line);padding-top:.8rem;color:var(--soft);font-size:.82rem}
@media (max-width:600px){body{font-size:15px}h1{font-size:1.55rem}h2{font-size:1.22rem;margin-top:2.2rem}main{padding:1rem .8rem 3rem}figure{padding:.4rem .3rem .2rem;border-radius:8px;overflow-x:auto}figure svg{min-width:360px}figcaption{position:sticky;left:0}.verdict{padding:.8rem 1rem}}
@media print{nav{display:none}main{max-width:none;padding:0}body{font-size:10.5pt}h2{margin-top:1.4rem}h2,h3{break-after:avoid}table{break-inside:auto;font-size:8.5pt}tr,figure,.verdict p{break-inside:avoid}details.printed::details-content{content-visibility:visible;block-size:auto}.figures{grid-template-columns:1fr 1fr;gap:.6rem}figure.wide svg{min-width:0}.scroll{overflow:visible}a{color:inherit;text-decoration:none}pre{white-space:pre-wrap}}
)";
}

}  // namespace tessera::report
