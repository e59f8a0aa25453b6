#include "api/call_context.hpp"
