#pragma once

#include <memory>

#include "programs/supervisor/boundary_client.hpp"
#include "programs/supervisor/main_session.hpp"
#include "programs/supervisor/ssh/peer.hpp"

namespace openshell::supervisor {

/// The sandbox behind the channel, as the SSH server sees it. `main` may be null: there is no main process to attach to.
std::shared_ptr<SshWorkload> make_ssh_workload(std::shared_ptr<BoundaryClient> boundary, std::shared_ptr<MainSession> main);

}  // namespace openshell::supervisor
