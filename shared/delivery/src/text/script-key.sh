# The agent runs without privileges: files that it reads belong to its group.
[ "$(stat -c %G etc/virtfleet/tls/agent.key)" = virtfleet ] || chgrp virtfleet etc/virtfleet/tls/agent.key ||
    alert 'cannot change the group of /etc/virtfleet/tls/agent.key to virtfleet, so the agent cannot read it: is it installed?'
