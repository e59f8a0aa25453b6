#include "actors/introspection/reporter.hpp"

#include <caf/actor_control_block.hpp>
#include <caf/message.hpp>

#include <algorithm>

#include "actors/introspection/shown_text.hpp"

namespace openshell {
namespace {

/// In the actor's own mailbox, from itself; no handler sees it. See MailboxAge.
using probe_atom = caf::atom_constant<caf::atom("probe")>;

bool is_probe(const caf::type_erased_tuple& message) {
  return message.size() == 1 && message.match_element<caf::atom_value>(0) && message.get_as<caf::atom_value>(0) == probe_atom::value;
}

}  // namespace

ActorSnapshot Reporter::complete(ActorSnapshot own) const {
  own.id = id_;
  own.kind = kind_;
  own.parent = parent_;
  own.handled = counter_ ? counter_->total() : handled_;
  own.failed = failed_;
  own.summary = shown_text(own.summary);
  own.last_error = shown_text(own.last_error.empty() ? last_error_ : own.last_error);
  return own;
}

void Reporter::measure(caf::scheduled_actor& self, ActorSnapshot& snapshot) {
  const auto waiting = self.mailbox().size();
  snapshot.mailbox = age_.others(waiting);
  if (!counter_) return;
  const auto now = self.clock().now();
  snapshot.oldest_ms = std::max(snapshot.oldest_ms, static_cast<std::uint64_t>(age_.oldest(waiting, now).count()));
  snapshot.rates = counter_->take_rates(now);
  said_waiting_ = snapshot.mailbox > 0;
  if (said_waiting_) probe_if_wanted(self, true);
}

void Reporter::probe_if_wanted(caf::scheduled_actor& self, bool certainly) {
  const auto waiting = self.mailbox().size();
  if (age_.wants_probe(waiting, waiting == 0 ? MailboxAge::TimePoint{} : self.clock().now(), certainly))
    self.ctrl()->enqueue(nullptr, caf::make_message_id(), caf::make_message(probe_atom::value), self.context());
}

caf::match_case::result Reporter::Watched::invoke(caf::detail::invoke_result_visitor& visitor, caf::type_erased_tuple& message) {
  if (is_probe(message)) {
    reporter_.age_.probed(self_.clock().now());
    if (reporter_.said_waiting_) report_();
    return caf::match_case::match;
  }
  const bool work = reporter_.counter_->count(message);  // before: a handler may take the message's values
  reporter_.disregarded_ = reporter_.touched_ = false;
  const auto result = inner_(visitor, message);
  if (reporter_.disregarded_) {
    reporter_.counter_->undo();
  } else if (work && !reporter_.touched_ && result != caf::match_case::no_match) {
    report_();
  }
  reporter_.probe_if_wanted(self_, false);
  return result;
}

}  // namespace openshell
