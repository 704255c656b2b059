#pragma once
#include <hw_hip.h>
